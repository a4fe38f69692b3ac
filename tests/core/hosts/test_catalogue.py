import re

import pytest

from edgekit import doors
from edgekit.errors import UsageError
from edgekit.hosts.catalogue import FurtherPlace, further_place


def test_a_place_is_a_runtime_on_a_host() -> None:
    qemu = ("env", "A=1", "qemu-aarch64", "-L", "/a", "py")
    places = {
        "openvino": FurtherPlace("openvino", "openvino"),
        "wasm-fp32": FurtherPlace("wasm-fp32"),
        f"ort-off@python:{' '.join(qemu)}": FurtherPlace("ort-off@python:qemu-aarch64", "ort-off", "", qemu),
        "ssh:me@pi": FurtherPlace("ort@ssh:me@pi", "ort", "me@pi", ("python3",)),
        "ssh:pi:/me/venv/bin/python": FurtherPlace("ort@ssh:pi", "ort", "pi", ("/me/venv/bin/python",)),
        "adb": FurtherPlace("adb", "adb"),
        "adb:192.168.1.4:5555": FurtherPlace("adb:192.168.1.4:5555", "adb", "192.168.1.4:5555"),
        "ort-cuda@ssh:me@box": FurtherPlace("ort-cuda@ssh:me@box", "ort-cuda", "me@box", ("python3",)),
    }
    assert {name: further_place(name) for name in places} == places


def test_what_is_no_place_is_refused() -> None:
    refused = {
        "openvin": "mean 'openvino'",
        "python:": "Add the command that starts Python there",
        "python:'": "no closing quotation",
        "ort@": "no host ''",
        "ort@telnet:me@pi": "no host 'telnet:me@pi'",
    }
    refused |= {"adb@ssh:me@pi": "Name it as adb:SERIAL"}
    refused |= {f"adb:{serial}": f"no device '{serial}'" for serial in ("", "-s", "a b", "a;reboot")}
    refused |= {name: f"no host '{name}'" for name in ("ssh:", "ssh:-oProxyCommand=touch", "ssh:me@pi; rm")}
    refused |= {name: f"no place '{name}'" for name in ("", "wasm-fp32@ssh:me@pi")}
    for name, said in refused.items():
        with pytest.raises(UsageError, match=re.escape(said)):
            further_place(name)


def test_the_verdict_on_a_gpu_is_without_tf32() -> None:
    assert doors.places.find("ort-cuda").settings["provider.use_tf32"] == "0"
    assert doors.places.find("ort-cuda-tf32").settings["provider.use_tf32"] == "1"
