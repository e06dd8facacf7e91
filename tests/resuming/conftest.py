from tests.jobs.conftest import store  # noqa: F401
