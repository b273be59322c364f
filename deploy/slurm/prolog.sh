#!/bin/sh
# slurm.conf: Prolog=/etc/slurm/zeus-prolog.sh, and PrologFlags=Alloc, so that it runs before the job
# and not with its first step. It takes 10 s at most. A prolog that fails drains its node: this one
# does not fail, it says why in the log of the system.
timeout 10 /usr/libexec/zeus/zeus-job-energy begin 2>&1 | logger -t zeus-prolog
exit 0
