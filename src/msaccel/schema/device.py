"""The keys of the devices."""

from __future__ import annotations

from dataclasses import dataclass

from msaccel.schema.fields import setting


@dataclass
class DeviceSettings:
    """A topology of servers and ranks. Virtual ranks take turns in one CPU process."""

    name: str = setting()
    target: str = setting(choices=("CPU", "GPU", "Ascend"))
    servers: int = setting(at_least=1, example="2")
    ranks_per_server: int = setting(at_least=1, example="8")
    simulate: str = setting(choices=("auto", "never", "always"))
    threads: int = setting(at_least=1, example="2")
    server_rank: int | None = setting(at_least=0, example="null, or 1 on the second server")
    master: str | None = setting(pattern=r"[^\s:]+:\d{1,5}", example="null, or 10.0.0.1:8118")
    rank_table: str | None = setting()
    bucket_mb: float = setting(at_least=0, example="25")
    timeout_s: float = setting(above=0, example="300")

    @property
    def ranks(self) -> int:
        return self.servers * self.ranks_per_server

    @property
    def on_cpu(self) -> bool:
        """Whether the job runs on a CPU, once `simulate=auto` is decided."""
        return self.target == "CPU" or self.simulated

    @property
    def simulated(self) -> bool:
        """Whether the ranks are virtual; `auto` is decided before the job starts (`msaccel.launch.simulation`)."""
        return self.simulate == "always"
