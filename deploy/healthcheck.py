"""Is the gateway of this container ready? The address may be given; the exit code says it."""

import ssl
import sys
import urllib.request

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:20006"
ours = ssl.create_default_context()
ours.check_hostname, ours.verify_mode = False, ssl.CERT_NONE  # its certificate names the address that clients use

for scheme in ("http", "https"):  # https if the configuration has `tls_cert`
    try:
        urllib.request.urlopen(f"{scheme}://{address}/readyz", timeout=1, context=ours)  # noqa: S310  # one of two schemes
        sys.exit(0)
    except OSError as error:
        print(f"{scheme}: {error}", file=sys.stderr)  # noqa: T201  # for `docker inspect`
sys.exit(1)
