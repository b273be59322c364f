#!/bin/sh
# slurm.conf: Epilog=/etc/slurm/zeus-epilog.sh. It runs however the job ended, 10 s at most. An epilog
# that fails drains its node: this one does not fail, it says why in the log of the system.
timeout 10 /usr/libexec/zeus/zeus-job-energy end 2>&1 | logger -t zeus-epilog
exit 0
