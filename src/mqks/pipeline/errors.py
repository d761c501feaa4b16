"""What users of the pipeline are told in a line: what is wrong, and what to do about it."""


class PipelineError(Exception):
    pass
