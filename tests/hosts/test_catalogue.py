import pytest

from edgekit.errors import UsageError
from edgekit.hosts.catalogue import RUNTIMES, further_place


@pytest.mark.parametrize(
    ("named", "name", "runtime", "host", "python"),
    [
        ("openvino", "openvino", "openvino", "", ()),
        ("wasm-fp32", "wasm-fp32", "", "", ()),
        (
            "ort-off@python:env A=1 qemu-aarch64 -L /a py",
            "ort-off@python:qemu-aarch64",
            "ort-off",
            "",
            ("env", "A=1", "qemu-aarch64", "-L", "/a", "py"),
        ),
        ("ssh:me@pi", "ort@ssh:me@pi", "ort", "me@pi", ("python3",)),
        ("ssh:pi:/home/me/venv/bin/python", "ort@ssh:pi", "ort", "pi", ("/home/me/venv/bin/python",)),
        ("ort-cuda@ssh:me@gpu-box", "ort-cuda@ssh:me@gpu-box", "ort-cuda", "me@gpu-box", ("python3",)),
    ],
)
def test_a_place_is_a_runtime_on_a_host(
    named: str, name: str, runtime: str, host: str, python: tuple[str, ...]
) -> None:
    place = further_place(named)
    assert (place.name, place.runtime, place.host, place.python) == (name, runtime, host, python)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("openvin", "did you mean 'openvino'?"),
        ("ort@", "no host ''"),
        ("ort@telnet:me@pi", "no host 'telnet:me@pi'"),
        ("ssh:", "no host 'ssh:'"),
        ("ssh:-oProxyCommand=touch", "no host 'ssh:-oProxyCommand=touch'"),
        ("ssh:me@pi; rm", "no host 'ssh:me@pi; rm'"),
        ("", "no place ''"),
        ("wasm-fp32@ssh:me@pi", "no place 'wasm-fp32@ssh:me@pi'"),
        ("python:", "name the command that starts Python there"),
        ("python:'", "no closing quotation"),
    ],
)
def test_what_is_no_place_is_refused(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        further_place(name)


def test_the_verdict_on_a_gpu_is_without_tf32() -> None:
    assert RUNTIMES["ort-cuda"].settings["provider.use_tf32"] == "0"
    assert RUNTIMES["ort-cuda-tf32"].settings["provider.use_tf32"] == "1"
