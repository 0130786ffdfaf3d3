"""What a figure was measured with: versions, processor, disk, and how quiet the machine was."""

import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import confluent_kafka

from penstock import __version__
from penstock.testing.kafka import KAFKA_VERSION


def facts() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "penstock": __version__,
        "Python": platform.python_version(),
        "Apache Kafka": KAFKA_VERSION,
        "Java": _java_version(),
        "client": f"confluent-kafka {confluent_kafka.version()}, "
        f"librdkafka {confluent_kafka.libversion()[0]}",
        "kernel": f"{platform.system()} {platform.release()}",
        "processor": f"{_processor()}, {os.cpu_count()} cores, shared by server and client",
        "memory": f"{memory:.0f} GiB",
        "file system": file_system(Path(tempfile.gettempdir())),
        "load before the run": f"{os.getloadavg()[0]:.1f} in the last minute",
    }


def _java_version() -> str:
    if shutil.which("java") is None:
        return ""
    said = subprocess.run(("java", "-version"), capture_output=True, text=True, check=False).stderr
    return said.partition('"')[2].partition('"')[0]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()  # not every architecture names its models


def file_system(folder: Path) -> str:
    """The kind that holds a folder: on one in memory, a sync costs nothing."""
    best = (0, "unknown")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mounted, kind, *_ = line.split()
        if folder.resolve().is_relative_to(mounted):
            best = max(best, (len(mounted), kind))
    return best[1]
