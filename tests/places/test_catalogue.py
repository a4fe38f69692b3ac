import pytest

from edgekit.errors import UsageError
from edgekit.places.catalogue import RUNTIMES, elsewhere


@pytest.mark.parametrize(
    ("given", "name", "runtime", "host", "python"),
    [
        ("openvino", "openvino", "openvino", "", "python3"),
        ("ssh:me@pi", "ort@ssh:me@pi", "ort", "me@pi", "python3"),
        ("ssh:pi:/home/me/venv/bin/python", "ort@ssh:pi", "ort", "pi", "/home/me/venv/bin/python"),
        ("ort-cuda@ssh:me@gpu-box", "ort-cuda@ssh:me@gpu-box", "ort-cuda", "me@gpu-box", "python3"),
    ],
)
def test_a_place_is_a_runtime_on_a_host(given: str, name: str, runtime: str, host: str, python: str) -> None:
    place = elsewhere(given)
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
    ],
)
def test_what_is_no_place_is_refused(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        elsewhere(name)


def test_the_verdict_on_a_gpu_is_without_tf32() -> None:
    assert RUNTIMES["ort-cuda"].settings["provider.use_tf32"] == "0"
    assert RUNTIMES["ort-cuda-tf32"].settings["provider.use_tf32"] == "1"
