"""Runs llama.cpp's own HTTP server, as the wheel `xllamacpp` brings it, on loopback until it is told to stop.

python server.py MODEL PORT [KEY]
"""

import os
import signal
import sys

import xllamacpp  # type: ignore[import-not-found,unused-ignore]


def main(model: str, port: int, key: str = "") -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"tiny"}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = 16384
    params.n_parallel = 2
    params.n_threads_http = 8
    params.n_predict = 512  # where a request sets no limit
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.use_jinja = True
    params.offline = True
    params.warmup = False
    params.ui = False
    params.sampling.seed = 42
    params.sampling.temp = 0.0
    if key:
        params.api_keys = [key]
    server = xllamacpp.Server(params)  # loads the model and listens
    print("READY", server.listening_address, flush=True)  # noqa: T201
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    os._exit(0)  # its threads need no orderly end here


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
