"""Where the repository stands; every default path starts there, whatever the current folder."""

from pathlib import Path

from msaccel.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"


def expanded(path: str | Path) -> Path:
    """A path of the user's, with ``~`` replaced by a home.

    Raises:
        ConfigError: it is the home of nobody here.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{path} begins with the home of a user who is not here; write another path.") from error
