"""The errors a user can cause: each message is one sentence that names the key and the mend."""


class UserError(Exception):
    """Something the user can put right; shown as one sentence, without a traceback."""


class ConfigError(UserError):
    """A key, type, range or option that can never be right, whatever the other keys say."""


class CombinationError(UserError):
    """Settings that are right by themselves and contradict each other."""


class DataError(UserError):
    """Data that is missing, damaged or of another kind than announced."""


class CheckpointError(UserError):
    """A checkpoint that is missing, damaged or of another model."""


class TrainingError(UserError):
    """Training that cannot go on, such as a loss that is not finite."""
