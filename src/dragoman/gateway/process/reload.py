"""Reload: a running gateway reads its configuration again. A bad one never replaces a good one."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from dragoman.errors import ConfigError
from dragoman.gateway.access.auth import Access
from dragoman.gateway.config.settings import Settings
from dragoman.gateway.process.certificate import Certificate
from dragoman.gateway.process.startup import ServeOptions, check_exposure, renew_access, settle, stamp_file
from dragoman.gateway.state import Gateway
from dragoman.log_line import LogLine

log = logging.getLogger(__name__)
WATCH_S = 0.5
SETTLE_S = 0.2  # half of a file that is being written may be valid: wait until it stops changing
# Settings that are read only when a process starts.
FIXED = (
    "host",
    "port",
    "log",
    "grace_s",
    "store_path",
    "store_rows",
    "state_secret",
    "xray_keep",
    "traffic",
    "state",
    "state_prefix",
    "on_state_loss",
    "known_turns_bytes",
    "admin_port",
    "database",
    "otel",
    "otel_content",
)


def read_again(
    options: ServeOptions, env: Mapping[str, str], old: Settings, access: Access, *, forget: bool = False
) -> tuple[Settings, Access]:
    """The configuration as it is on disk now; a ConfigError if it must not replace the old one."""
    settings = settle(options, env, old.source)
    check_drops(old, settings)
    fresh = renew_access(access, settings, forget=forget)
    check_exposure(settings, fresh)
    return settings, fresh


def check_drops(old: Settings, new: Settings) -> None:
    """Refuses a file that no longer mentions its providers or its keys: most likely it was cut short."""
    if old.says_providers and not new.says_providers:
        raise ConfigError(new.source, "providers", "none is left; if that is intended, write `demo = true`")
    if old.all_keys and not new.says_keys:
        raise ConfigError(new.source, "client_keys", "none is left; if that is intended, write `client_keys = []`")


class LastGood:
    """The configuration that a new worker begins with: the last good one, even if the file is bad by now."""

    def __init__(
        self,
        options: ServeOptions,
        env: Mapping[str, str],
        settings: Settings,
        access: Access,
        certificate: Certificate | None = None,
    ) -> None:
        self.options, self.env, self.settings, self.access = options, env, settings, access
        self.certificate = certificate

    def follow(self) -> None:
        """A worker has loaded the file."""
        with suppress(Exception):  # it has changed again since; no file may stop a supervisor
            self.settings, self.access = read_again(self.options, self.env, self.settings, self.access)
            self._load_certificate(self.settings)

    def _load_certificate(self, settings: Settings) -> None:
        if self.certificate is not None:
            self.certificate.load(settings)

    def for_new_process(self) -> tuple[Settings, Access]:
        try:
            if self.settings.source:
                settings, access = read_again(self.options, self.env, self.settings, self.access, forget=True)
                self._load_certificate(settings)
                return settings, access
        except Exception as error:  # like the other workers, it goes on without this file
            why = str(error) if isinstance(error, ConfigError) else type(error).__name__
            log.warning(LogLine("config_rejected", {"why": why, "generation": 0}))
        return self.settings, renew_access(self.access, self.settings, forget=True)


def reload(gateway: Gateway, options: ServeOptions, env: Mapping[str, str]) -> bool:
    """Loads the configuration again. If it is bad, the old one stays (P10)."""
    old = gateway.now
    if not old.settings.source:
        return False
    try:
        settings, access = read_again(options, env, old.settings, old.access)
    except ConfigError as error:
        return _reject(gateway, str(error))
    except Exception as error:  # a file must not be able to stop a running gateway
        return _reject(gateway, f"{old.settings.source}: cannot be read ({type(error).__name__})")
    gateway.replace(settings, access)
    gateway.remember_config("file")
    log.info(LogLine("config_loaded", {"generation": gateway.now.number, "source": settings.source}))
    if late := _needs_restart(old.settings, settings, access):
        log.warning(LogLine("config_needs_a_restart", {"keys": ", ".join(late)}))
    return True


def _needs_restart(old: Settings, new: Settings, access: Access) -> list[str]:
    late = [name for name in FIXED if getattr(new, name) != getattr(old, name)]
    if bool(old.tls_cert) != bool(new.tls_cert):
        late.append("tls_cert")  # a socket speaks HTTP or HTTPS as long as it lives
    if old.all_keys and not new.all_keys and not access.keys.any_good:
        late.append("client_keys")  # keys stay needed while this process runs, and now there is none
    return late


def _reject(gateway: Gateway, why: str) -> bool:
    gateway.rejected += 1
    log.warning(LogLine("config_rejected", {"why": why, "generation": gateway.now.number}))
    return False


async def watch(gateway: Gateway, load: Callable[[], object]) -> None:
    """Reloads when the file has changed and is no longer being written."""
    path = Path(gateway.now.settings.source) if gateway.now.settings.source else None
    if path is None:
        log.warning(LogLine("nothing_to_watch", {"why": "there is no configuration file"}))
        return
    seen = gateway.now.settings.stamp  # of the file that was read: it may have changed since
    while True:
        await asyncio.sleep(WATCH_S)
        stamp = stamp_file(path)
        if stamp is None or stamp == seen:
            continue  # without a file, the old configuration stays
        while True:
            await asyncio.sleep(SETTLE_S)
            later = stamp_file(path)
            if later == stamp:
                break
            stamp = later
        if stamp is not None:
            seen = stamp
            load()
