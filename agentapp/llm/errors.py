"""What can go wrong between us and a model, as the loop needs to know it."""


class ModelError(Exception):
    """There is no reply. The message may be shown to people: it holds no key, no header, no whole body.

    `retryable` says that the same request may succeed later, `retry_after` in how many seconds the
    provider wants to be asked again (None: it did not say), `code` in one word what happened.
    """

    def __init__(
        self, message: str, *, retryable: bool = False, retry_after: float | None = None, code: str = "error"
    ) -> None:
        super().__init__(message)
        self.retryable, self.retry_after, self.code = retryable, retry_after, code
