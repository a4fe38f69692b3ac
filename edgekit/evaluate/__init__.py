"""Engine that runs an artifact over inputs, repeats some, times it, and measures its start-up.

It needs numpy and a runtime, and imports only the modules of edgekit that a pack carries
(`edgekit.hosts.pack.CARRIED`). So the same code serves a target's own places, further places on this host, hosts over
ssh, emulators, and packs (`python -m edgekit.evaluate`). It judges nothing: it returns raw outputs, times, and facts of
the host.
"""
