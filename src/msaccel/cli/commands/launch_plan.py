"""The commands that start a job on several servers, printed for each of them."""

from __future__ import annotations

import argparse


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="+", metavar="KEY=VALUE", help="of run.py: device=ascend16 accel=adasum …")
    parser.add_argument("--hosts", default="", metavar="A,B", help="one for each server; the first is the master")
    parser.add_argument("--port", type=int, default=8118, help="of the master, which uses the next one too")
    parser.add_argument(
        "--style",
        choices=("type", "ssh", "srun"),
        default="type",
        help="commands to type on each server, to type here, or one command for Slurm",
    )


def run(options: argparse.Namespace) -> int:
    from msaccel.launch.plan_commands import plan

    hosts = options.hosts.split(",") if options.hosts else []
    print("\n".join(plan(options.overrides, hosts, options.port, options.style)))
    return 0
