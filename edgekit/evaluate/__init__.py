"""The engine that asks: it runs an artifact over questions, asks again, times it, and measures its start.

It needs numpy and a runtime, and imports of edgekit only what a pack carries (`edgekit.hosts.pack.CARRIED`). So the
same code serves a target's own places, further places on this host, hosts over ssh, emulators, and packs
(`python -m edgekit.evaluate`). Nothing is judged here: it returns raw answers, times, and the host's own words.
"""
