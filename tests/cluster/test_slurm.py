"""Jobs of a real Slurm on one node, charged by prolog and epilog from a daemon on a simulated machine.

munged, slurmctld, slurmd and zeusd run in a folder and a network namespace of their own. The GPUs
draw constant power, so that the truth is watts times seconds.
"""

import json
import os
import pathlib
import shutil
import stat
import subprocess

import pytest

from conftest import ROOT, wait_for
from network import Network, Program, Refused

WATTS = {0: 100.0, 1: 300.0}
PACKAGE_WATTS = 50.0
# What one reading may lag: the update of the counter, and the daemon's own.
LAG_S = 0.3
SLURM = ROOT / "deploy" / "slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel")

MACHINE = """
description = "Two GPUs and one socket at constant power, with counters."
[[gpu]]
model = "Simulated 100 W"
uuid = "GPU-11111111-1111-1111-1111-111111111111"
pci = "00000000:01:00.0"
architecture = "hopper"
power = { kind = "constant", watts = 100 }
energy = { update = "20ms", quantum = 0.001 }
[[gpu]]
model = "Simulated 300 W"
uuid = "GPU-22222222-2222-2222-2222-222222222222"
pci = "00000000:02:00.0"
architecture = "hopper"
power = { kind = "constant", watts = 300 }
energy = { update = "20ms", quantum = 0.001 }
[[zone]]
path = "intel-rapl:0"
name = "package-0"
power = { kind = "constant", watts = 50 }
"""

SLURM_CONF = """
ClusterName=zeus
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
MailProg=/bin/true
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
SchedulerParameters=sched_interval=1,sched_min_interval=0
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
Prolog={folder}/prolog.sh
Epilog={folder}/epilog.sh
PrologFlags=Alloc
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=256 Gres=gpu:2
PartitionName=all Nodes=node1 Default=YES OverSubscribe=NO MaxTime=5
"""


class Slurm:
    def __init__(self, folder: pathlib.Path, network: Network, build: pathlib.Path):
        self.folder, self.network, self.build = folder, network, build
        self.programs: list[Program] = []
        self.environment = {
            **os.environ,
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
            "SLURM_CONF": str(folder / "slurm.conf"),
            "TMPDIR": str(folder),
        }

    def start_all(self):
        self.session = self.start_machine()
        self.zeusd = self.start_zeusd()
        self.write_configuration()
        self.start_munge()
        for name, *options in (("slurmctld", "-D", "-i"), ("slurmd", "-D", "-N", "node1")):
            self.start(name, name, *options)
        self.wait_until_idle()

    def start(self, name: str, *argv) -> Program:
        program = Program(
            self.network.argv(self.network.hub, *argv), self.folder / f"{name}.log", env=self.environment
        )
        self.programs.append(program)
        return program

    def start_machine(self) -> pathlib.Path:
        """A simulated machine that outlives the daemons that look at it, as real ones do."""
        file = self.folder / "machine.toml"
        file.write_text(MACHINE)
        owner = self.start("machine", self.build / "bin" / "zeus", "sim", "run", file, "--", "sleep", "600")

        def session():
            assert owner.runs(), owner.output()
            return next(self.folder.glob("zeus-sim-*/machine-*/state"), None)

        return wait_for("the simulated machine", session).parent

    def start_zeusd(self) -> Program:
        program = self.start(
            "zeusd",
            self.build / "bin" / "zeusd",
            "serve",
            f"--socket-path={self.folder / 'zeusd.sock'}",
            f"--host=sim:{self.session}",
            "--allow-simulated",
            "--enable=gpu-read,cpu-read",
        )
        wait_for("zeusd", lambda: self.discovers(program))
        return program

    def discovers(self, program: Program) -> bool:
        assert program.runs(), program.output()
        curl = ("curl", "-sf", "--unix-socket", self.folder / "zeusd.sock", "http://localhost/discover")
        return subprocess.run(curl, capture_output=True).returncode == 0

    def write_configuration(self):
        for name in ("gpu0", "gpu1"):  # Devices, as Slurm wants to see them: what /dev/null is.
            os.mknod(self.folder / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-1]\n")
        host = os.uname().nodename.partition(".")[0]
        (self.folder / "slurm.conf").write_text(SLURM_CONF.format(folder=self.folder, host=host))
        (self.folder / "cgroup.conf").write_text("")
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        for name in ("prolog.sh", "epilog.sh"):
            text = (SLURM / name).read_text()
            for old, new in (
                ("/usr/libexec/zeus/zeus-job-energy", str(SLURM / "zeus-job-energy")),
                (
                    " 2>&1 | logger",
                    f" --socket {self.folder}/zeusd.sock --state {self.folder}/records"
                    f" --log {self.folder}/jobs.jsonl >>{self.folder}/scripts.log 2>&1; : logger",
                ),
            ):
                assert old in text
                text = text.replace(old, new)
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def start_munge(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o400)
        self.start(
            "munged", "munged", "--foreground", "--force", f"--key-file={key}",
            f"--socket={self.folder}/munge.sock", f"--pid-file={self.folder}/munge.pid",
            f"--log-file={self.folder}/munge.log", f"--seed-file={self.folder}/munge.seed",
        )  # fmt: skip
        wait_for("munged", (self.folder / "munge.sock").exists)

    def wait_until_idle(self):
        try:
            wait_for("the node", lambda: "State=IDLE " in self.ask("scontrol", "show", "node", "node1"), 60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def ask(self, *argv) -> str:
        done = subprocess.run(
            self.network.argv(self.network.hub, *argv),
            env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    def submit(self, command: str, gpus: int = 1) -> int:
        """Starts a job, and waits until it runs."""
        marker = self.folder / "running"
        marker.unlink(missing_ok=True)
        gres = [f"--gres=gpu:{gpus}"] if gpus else []
        out = self.ask(
            "sbatch", "--parsable", "-n1", "--mem=1", *gres, "-o", "/dev/null", "--wrap", f"touch {marker}; {command}"
        )
        assert out, self.logs()
        wait_for(f"job {out.strip()} to run", marker.exists, 60)
        return int(out)

    def charged(self, job: int) -> dict:
        """The line of the job, once its epilog has run."""
        log = self.folder / "jobs.jsonl"

        def line():
            lines = map(json.loads, log.read_text().splitlines()) if log.exists() else ()
            return next((x for x in lines if x["job"] == job), None)

        try:
            return wait_for(f"the epilog of job {job}", line, 60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def logs(self) -> str:
        return "\n".join(
            f"--- {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in self.folder.glob("*.log")
        )

    def close(self):
        for program in reversed(self.programs):
            program.stop()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    build = pathlib.Path(os.environ.get("ZEUS_BUILD", ROOT / "build" / "release"))
    if not (build / "bin" / "zeusd").exists():
        pytest.skip(f"there is no {build / 'bin' / 'zeusd'}; build it or set ZEUS_BUILD")
    if os.geteuid() != 0:
        pytest.skip("slurmd runs jobs as their users, and must be root")
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [p for p in (*PROGRAMS, "curl") if shutil.which(p, path=path) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (scripts/setup deploy)")
    try:
        network = Network(0)
    except Refused as why:
        pytest.skip(f"no network namespaces here: {why}")
    made = Slurm(tmp_path_factory.mktemp("slurm"), network, build)
    try:
        made.start_all()
        yield made
    finally:
        made.close()
        network.close()


def check_gpu(charge: dict, seconds: float):
    watts = WATTS[charge["id"]]
    assert charge["joules"] == pytest.approx(watts * seconds, abs=watts * LAG_S), charge
    assert charge["shared"] is False


# Each job is charged its own GPUs, and no other.
def test_two_jobs_on_one_node_are_charged_their_own_gpus(slurm):
    first, second = slurm.submit("sleep 4"), slurm.submit("sleep 3")
    lines = [slurm.charged(first), slurm.charged(second)]
    assert [g["id"] for line in lines for g in line["gpus"]] == [0, 1]
    for line in lines:
        check_gpu(line["gpus"][0], line["seconds"])
        assert line["gpu_joules"] == line["gpus"][0]["joules"]
        assert line["seconds"] >= 3
        (cpu,) = line["cpus"]
        assert cpu["shared"] is True
        assert cpu["joules"] == pytest.approx(PACKAGE_WATTS * line["seconds"], abs=PACKAGE_WATTS * LAG_S)
        assert line["simulation"] == "machine"
    assert lines[0]["jobs_beside"] == [str(second)] and lines[1]["jobs_beside"] == [str(first)]


def test_a_job_alone_has_the_processor_to_itself(slurm):
    job = slurm.submit("sleep 1", gpus=2)
    line = slurm.charged(job)
    assert line["jobs_beside"] == [] and line["cpus"][0]["shared"] is False
    for charge in line["gpus"]:
        check_gpu(charge, line["seconds"])
    assert line["gpu_joules"] == pytest.approx(sum(g["joules"] for g in line["gpus"]), abs=1e-6)


def test_a_job_without_gpus_is_charged_none(slurm):
    line = slurm.charged(slurm.submit("sleep 0.5", gpus=0))
    assert line["gpus"] == [] and line["gpu_joules"] is None
    assert line["cpus"][0]["joules"] > 0


def test_a_job_that_is_killed_is_charged_until_then(slurm):
    job = slurm.submit("sleep 300")
    slurm.ask("scancel", job)
    line = slurm.charged(job)
    assert line["seconds"] < 60
    check_gpu(line["gpus"][0], line["seconds"])


def test_a_restart_of_the_daemon_loses_no_gpu_and_says_what_it_loses(slurm):
    job = slurm.submit("sleep 3")
    slurm.zeusd.kill()
    slurm.zeusd = slurm.start_zeusd()
    line = slurm.charged(job)
    check_gpu(line["gpus"][0], line["seconds"])
    (cpu,) = line["cpus"]
    assert cpu["joules"] is None and "started again" in cpu["why"]


def test_without_the_daemon_nothing_is_known_and_the_job_runs(slurm):
    slurm.zeusd.kill()
    job = slurm.submit("sleep 0.1")
    line = slurm.charged(job)
    slurm.zeusd = slurm.start_zeusd()
    assert line["gpu_joules"] is None and "zeusd did not answer" in line["why"]
    slurm.wait_until_idle()
    assert not list((slurm.folder / "records").glob("*.json")), "no record outlives its job"
