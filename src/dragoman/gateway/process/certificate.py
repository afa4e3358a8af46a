"""The certificate that the gateway shows. A new one that cannot be used never replaces a good one.

A context that listens must not read files again: if the new key does not fit, OpenSSL has dropped the old pair by then.
So each new pair gets a context of its own, and each handshake begins with the newest good one.
"""

import logging
import ssl

from dragoman.errors import ConfigError
from dragoman.gateway.config.settings import Settings
from dragoman.log_line import LogLine

log = logging.getLogger(__name__)


class Certificate:
    def __init__(self, settings: Settings) -> None:
        """A ConfigError if it cannot be used."""
        self.listening = read_certificate(settings)
        self._newest = self.listening
        self.listening.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._newest

    def load(self, settings: Settings) -> None:
        """Reads the files again. Connections that are open keep the old certificate."""
        if not settings.tls_cert:
            return
        try:
            self._newest = read_certificate(settings)
        except ConfigError as error:
            log.warning(LogLine("certificate_rejected", {"why": error.why}))


def open_certificate(settings: Settings) -> Certificate | None:
    return Certificate(settings) if settings.tls_cert else None


def read_certificate(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # without a password OpenSSL would ask the terminal for one, and wait
        context.load_cert_chain(settings.tls_cert, settings.tls_key or None, password="")
    except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        words = f"the certificate or its key cannot be used: {why}"
        raise ConfigError(settings.source or "settings", "tls_cert", words) from error
    return context
