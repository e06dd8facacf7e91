"""Where the repository stands; every default path starts there, whatever the current folder."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
