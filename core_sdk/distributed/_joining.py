"""How the ranks of a group come together: the one place that chooses between chief and member, Unix and TCP."""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from core_sdk.distributed._channel import Channel, SoloChannel
from core_sdk.distributed._chief import ChiefChannel
from core_sdk.distributed._connecting import join_chief
from core_sdk.distributed._listeners import Listeners
from core_sdk.distributed._member import MemberChannel
from core_sdk.distributed._messages import Place
from core_sdk.distributed._neighbours import NeighbourRendezvous
from core_sdk.distributed._reception import Reception, welcome
from core_sdk.distributed._rendezvous import (
    Address,
    DirectoryRendezvous,
    FixedRendezvous,
    GatheredRendezvous,
    Rendezvous,
    own_addresses,
)
from core_sdk.distributed._star import StarChannel
from core_sdk.distributed._terms import Terms
from core_sdk.environment import Environment, Meeting, launched_chief_ip
from core_sdk.errors import NoChannelKeyError

_MIN_KEY_BYTES = 16
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Reach:
    """From where a chief is to be reached."""

    tcp_hosts: Sequence[str]
    bind_host: str | None
    """All interfaces if None."""
    port: int
    has_unix: bool


def join_ranks(place: Place, terms: Terms, rendezvous: Rendezvous, reach: Reach) -> StarChannel:
    """The group of all ranks. Collective; raises a `JoinError`."""
    if place.rank != 0:
        chief, places = join_chief(rendezvous, place, terms.join_timeout_s)
        return MemberChannel(place, chief, places, terms.timeout_s)
    key = rendezvous.address.key if isinstance(rendezvous, FixedRendezvous) else secrets.token_bytes(32)
    with Listeners() as listeners:
        address = _listen(listeners, place, reach, key)
        try:
            rendezvous.publish(address)
            peers = Reception(listeners, key, place, terms.join_timeout_s, rendezvous.insist).receive_all()
        finally:
            rendezvous.withdraw()
    # Only now: whoever is welcome may go on to the next group, with another chief at the same rendezvous.
    welcome(place, peers)
    return ChiefChannel(place, peers, terms.timeout_s)


def join_again(place: Place, everyone: StarChannel, terms: Terms, reach: Reach) -> StarChannel:
    """A second group of all ranks, beside `everyone`. Collective; raises a `JoinError`."""
    with Listeners() as listeners:
        key = secrets.token_bytes(32)
        address = everyone.broadcast_outcome(lambda: _listen(listeners, place, reach, key))
        if place.rank == 0:
            peers = Reception(listeners, key, place, terms.join_timeout_s, everyone.check).receive_all()
            welcome(place, peers)
            return ChiefChannel(place, peers, terms.timeout_s)
    chief, places = join_chief(GatheredRendezvous(address), place, terms.join_timeout_s, everyone.check)
    return MemberChannel(place, chief, places, terms.timeout_s)


def join_node(place: Place, everyone: StarChannel, terms: Terms) -> Channel:
    """The group of this rank's node. Collective over all ranks; raises a `JoinError`."""
    if place.cross_size == 1:
        return everyone
    node = _place_in_node(place)
    is_chief = place.local_rank == 0 and place.local_size > 1
    with Listeners() as listeners:
        address = _listen(listeners, node, _reach_in_node(terms), secrets.token_bytes(32)) if is_chief else None
        addresses = everyone.allgather((place.cross_rank, address))
        if place.local_size == 1:
            return SoloChannel()
        if address is not None:
            peers = Reception(listeners, address.key, node, terms.join_timeout_s, everyone.check).receive_all()
            welcome(node, peers)
            return ChiefChannel(node, peers, terms.timeout_s)
    found = next(address for cross_rank, address in addresses if cross_rank == place.cross_rank and address)
    chief, places = join_chief(GatheredRendezvous(found), node, terms.join_timeout_s, everyone.check)
    return MemberChannel(node, chief, places, terms.timeout_s)


def choose_rendezvous(place: Place, terms: Terms, meeting: Meeting) -> Rendezvous:
    """Raises `NoChannelKeyError`, or `ValueError` for a rendezvous that is none."""
    if terms.rendezvous is not None:
        return _given_rendezvous(terms.rendezvous, place, meeting)
    is_spread = place.cross_size > 1
    if meeting.directory is not None and not is_spread:
        return DirectoryRendezvous(meeting.directory / str(terms.number), is_ours=True)
    if not is_spread:
        return NeighbourRendezvous(Environment.read().home, terms.number, place.local_size)
    chief_ip = terms.chief_ip or launched_chief_ip()
    if chief_ip is None:
        raise ValueError("on several nodes the ranks must be told where rank 0 is: pass chief_ip, or set DET_CHIEF_IP")
    return FixedRendezvous(chief_ip, terms.number, _key(meeting, place))


def torch_rendezvous(meeting: Meeting, terms: Terms) -> Rendezvous | None:
    """Through the store that torchrun or DeepSpeed has told of; None if there is none, or none is needed.

    Raises `ValueError` for a port that is none, and `JoinError` if the store does not answer.
    """
    if terms.rendezvous is not None or meeting.directory is not None:
        return None
    if meeting.master_address is None or meeting.master_port is None:
        return None
    if not 0 < meeting.master_port < 1 << 16:
        raise ValueError(f"MASTER_PORT is {meeting.master_port}; a port is between 1 and 65535")
    from core_sdk.distributed._torch_store import TorchStoreRendezvous  # loads torch

    prefix = f"{meeting.generation}/{terms.number}"
    return TorchStoreRendezvous(meeting.master_address, meeting.master_port, prefix, terms.join_timeout_s)


def choose_reach(place: Place, terms: Terms, meeting: Meeting, rendezvous: Rendezvous) -> Reach:
    if isinstance(rendezvous, FixedRendezvous):
        address = rendezvous.address
        host = address.tcp_hosts[0]
        bind_host = host if place.cross_size == 1 else _own_address(host)
        return Reach(address.tcp_hosts, bind_host, address.tcp_port, has_unix=False)
    if place.cross_size == 1:
        return _reach_in_node(terms)
    bind_host = None if terms.chief_ip is None else _own_address(terms.chief_ip)
    return Reach(_chief_hosts(terms, meeting), bind_host, 0, has_unix=not terms.has_tcp_only)


def _own_address(host: str) -> str | None:
    """None for a name, which may be another address here than elsewhere, and for what is translated on its way here."""
    with contextlib.suppress(ValueError, OSError):
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
            return host
    return None


def _reach_in_node(terms: Terms) -> Reach:
    return Reach([_LOOPBACK] if terms.has_tcp_only else [], _LOOPBACK, 0, has_unix=not terms.has_tcp_only)


def _listen(listeners: Listeners, place: Place, reach: Reach, key: bytes) -> Address:
    return Address(
        key=key,
        host=place.host,
        process=place.process,
        unix_path=listeners.listen_unix() if reach.has_unix else None,
        tcp_hosts=list(reach.tcp_hosts),
        tcp_port=listeners.listen_tcp(reach.bind_host, reach.port) if reach.tcp_hosts else 0,
    )


def _place_in_node(place: Place) -> Place:
    return msgspec.structs.replace(
        place,
        rank=place.local_rank,
        size=place.local_size,
        cross_rank=0,
        cross_size=1,
        rank_of_all=place.rank,
    )


def _chief_hosts(terms: Terms, meeting: Meeting) -> list[str]:
    if terms.chief_ip is not None:
        return [terms.chief_ip]
    # torchrun chooses the node of rank 0 for its own store.
    told = [address for address in (launched_chief_ip(), meeting.master_address) if address]
    return list(dict.fromkeys([*told, *own_addresses()]))


def _given_rendezvous(rendezvous: str, place: Place, meeting: Meeting) -> Rendezvous:
    if rendezvous and "://" not in rendezvous:
        return DirectoryRendezvous(Path(rendezvous))
    try:
        url = urlsplit(rendezvous)
        host, port = url.hostname, url.port
    except ValueError:  # a port that is no number, or an address in wrong brackets
        host, port = None, None
    if rendezvous.startswith("tcp://") and host and port:
        return FixedRendezvous(host, port, _key(meeting, place))
    raise ValueError(f"rendezvous is {rendezvous!r}; it must be a directory, or tcp://HOST:PORT")


def _key(meeting: Meeting, place: Place) -> bytes:
    if meeting.key is None:
        raise NoChannelKeyError(place.cross_size)
    if len(meeting.key) < _MIN_KEY_BYTES:
        raise ValueError(f"CORE_SDK_CHANNEL_KEY has {len(meeting.key)} bytes; it must have at least {_MIN_KEY_BYTES}")
    return meeting.key
