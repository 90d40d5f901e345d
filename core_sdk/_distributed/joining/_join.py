"""Joins the ranks of a group: the one place that chooses between chief and member, and between Unix and TCP."""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from core_sdk._distributed._channel import Channel, SoloChannel
from core_sdk._distributed._topology import RankIdentity
from core_sdk._distributed.calls._chief import ChiefChannel
from core_sdk._distributed.calls._collectives import StarChannel
from core_sdk._distributed.calls._member import MemberChannel
from core_sdk._distributed.joining._accepting import RankAcceptor, welcome
from core_sdk._distributed.joining._connecting import join_chief
from core_sdk._distributed.joining._listeners import Listeners
from core_sdk._distributed.joining._neighbours import NeighbourRendezvous
from core_sdk._distributed.joining._options import JoinOptions
from core_sdk._distributed.joining._rendezvous import (
    ChiefAddress,
    DirectoryRendezvous,
    KnownRendezvous,
    Rendezvous,
    own_addresses,
)
from core_sdk._ground.environment import Environment, MeetingPlace, launched_chief_ip
from core_sdk.errors import JoinError

_MIN_KEY_BYTES = 16
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class ListenOptions:
    """The addresses at which a chief listens, and by which other ranks reach it."""

    tcp_hosts: Sequence[str]
    bind_host: str | None
    """The address to listen at; all interfaces if None."""
    port: int
    has_unix: bool


def join_ranks(
    identity: RankIdentity, options: JoinOptions, rendezvous: Rendezvous, listen_options: ListenOptions
) -> StarChannel:
    """Forms the group of all ranks. Collective; raises a `JoinError` or `RankDiedError`."""
    if identity.rank != 0:
        return _connect(rendezvous, identity, options)
    key = rendezvous.address.key if isinstance(rendezvous, KnownRendezvous) else secrets.token_bytes(32)
    with Listeners() as listeners:
        address = _listen(listeners, identity, listen_options, key)
        try:
            rendezvous.publish(address)
            peers = RankAcceptor(listeners, key, identity, options.join_timeout_s, rendezvous.insist).receive_all()
        finally:
            rendezvous.withdraw()
    # Only after the withdrawal: a welcomed rank may go on to the next group, whose chief may use the same rendezvous.
    welcome(identity, peers)
    return ChiefChannel(identity, peers, options.timeout_s)


def join_again(
    identity: RankIdentity, everyone: StarChannel, options: JoinOptions, listen_options: ListenOptions
) -> StarChannel:
    """Forms a second group of all ranks, in addition to `everyone`. Collective; raises a `ChannelError`."""
    with Listeners() as listeners:
        key = secrets.token_bytes(32)
        address = everyone.broadcast_outcome(lambda: _listen(listeners, identity, listen_options, key))
        if identity.rank == 0:
            return _accept(listeners, key, identity, everyone, options)
    return _connect(_gathered(address), identity, options, everyone.check)


def join_node(identity: RankIdentity, everyone: StarChannel, options: JoinOptions) -> Channel:
    """Forms the group of this rank's node. Collective over all ranks; raises a `ChannelError`."""
    if identity.cross_size == 1:
        return everyone
    node = msgspec.structs.replace(
        identity,
        rank=identity.local_rank,
        size=identity.local_size,
        cross_rank=0,
        cross_size=1,
        rank_of_all=identity.rank,
    )
    is_chief = identity.local_rank == 0 and identity.local_size > 1
    with Listeners() as listeners:
        key = secrets.token_bytes(32)
        address = _listen(listeners, node, _listen_options_in_node(options), key) if is_chief else None
        addresses = everyone.allgather((identity.cross_rank, address))
        if identity.local_size == 1:
            return SoloChannel()
        if is_chief:
            return _accept(listeners, key, node, everyone, options)
    found = next(address for cross_rank, address in addresses if cross_rank == identity.cross_rank and address)
    return _connect(_gathered(found), node, options, everyone.check)


def _accept(
    listeners: Listeners, key: bytes, identity: RankIdentity, everyone: StarChannel, options: JoinOptions
) -> StarChannel:
    peers = RankAcceptor(listeners, key, identity, options.join_timeout_s, everyone.check).receive_all()
    welcome(identity, peers)
    return ChiefChannel(identity, peers, options.timeout_s)


def _connect(
    rendezvous: Rendezvous, identity: RankIdentity, options: JoinOptions, check: Callable[[], None] = lambda: None
) -> StarChannel:
    chief, ranks = join_chief(rendezvous, identity, options.join_timeout_s, check)
    return MemberChannel(identity, chief, ranks, options.timeout_s)


def _gathered(address: ChiefAddress) -> Rendezvous:
    return KnownRendezvous("the group of all ranks", address)


def choose_rendezvous(identity: RankIdentity, options: JoinOptions, meeting: MeetingPlace) -> Rendezvous:
    """Chooses the place where the ranks meet.

    Raises `JoinError`, or `ValueError` if ranks on several nodes are not told where rank 0 is, for a key that
    is too short, and for a `rendezvous` that is neither a directory nor an address.
    """
    if options.rendezvous is not None:
        return _given_rendezvous(options.rendezvous, identity, meeting)
    is_spread = identity.cross_size > 1
    if meeting.directory is not None and not is_spread:
        return DirectoryRendezvous(meeting.directory / str(options.number), is_ours=True)
    if not is_spread:
        return NeighbourRendezvous(Environment.read().home, options.number, identity.local_size)
    chief_ip = options.chief_ip or launched_chief_ip()
    if chief_ip is None:
        raise ValueError("on several nodes the ranks must be told where rank 0 is: pass chief_ip, or set DET_CHIEF_IP")
    return _fixed(chief_ip, options.number, _key(meeting, identity))


def torch_rendezvous(meeting: MeetingPlace, options: JoinOptions) -> Rendezvous | None:
    """Returns the rendezvous through the store whose address torchrun or DeepSpeed has set.

    Returns None if there is no store, or none is needed. Raises `ValueError` for a wrong port, and `JoinError` if the
    store does not answer.
    """
    if options.rendezvous is not None or meeting.directory is not None:
        return None
    if meeting.master_address is None or meeting.master_port is None:
        return None
    if not 0 < meeting.master_port < 1 << 16:
        raise ValueError(f"MASTER_PORT is {meeting.master_port}; a port is between 1 and 65535")
    from core_sdk._distributed.joining._torch import TorchStoreRendezvous  # loads torch

    prefix = f"{meeting.generation}/{options.number}"
    return TorchStoreRendezvous(meeting.master_address, meeting.master_port, prefix, options.join_timeout_s)


def choose_listen_options(
    identity: RankIdentity, options: JoinOptions, meeting: MeetingPlace, rendezvous: Rendezvous
) -> ListenOptions:
    if isinstance(rendezvous, KnownRendezvous):
        address = rendezvous.address
        host = address.tcp_hosts[0]
        bind_host = host if identity.cross_size == 1 else _own_address(host)
        return ListenOptions(address.tcp_hosts, bind_host, address.tcp_port, has_unix=False)
    if identity.cross_size == 1:
        return _listen_options_in_node(options)
    bind_host = None if options.chief_ip is None else _own_address(options.chief_ip)
    return ListenOptions(_chief_hosts(options, meeting), bind_host, 0, has_unix=not options.has_tcp_only)


def _own_address(host: str) -> str | None:
    """Returns `host` if it is an address of this host; None for a name, and for an address that a router translates."""
    with contextlib.suppress(ValueError, OSError):
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
            return host
    return None


def _listen_options_in_node(options: JoinOptions) -> ListenOptions:
    return ListenOptions([_LOOPBACK] if options.has_tcp_only else [], _LOOPBACK, 0, has_unix=not options.has_tcp_only)


def _listen(listeners: Listeners, identity: RankIdentity, listen_options: ListenOptions, key: bytes) -> ChiefAddress:
    return ChiefAddress(
        key=key,
        host=identity.host,
        process=identity.process,
        unix_path=listeners.listen_unix() if listen_options.has_unix else None,
        tcp_hosts=list(listen_options.tcp_hosts),
        tcp_port=listeners.listen_tcp(listen_options.bind_host, listen_options.port) if listen_options.tcp_hosts else 0,
    )


def _chief_hosts(options: JoinOptions, meeting: MeetingPlace) -> list[str]:
    if options.chief_ip is not None:
        return [options.chief_ip]
    # torchrun's own store is on the node of rank 0.
    told = [address for address in (launched_chief_ip(), meeting.master_address) if address]
    return list(dict.fromkeys([*told, *own_addresses()]))


def _given_rendezvous(rendezvous: str, identity: RankIdentity, meeting: MeetingPlace) -> Rendezvous:
    if rendezvous and "://" not in rendezvous:
        return DirectoryRendezvous(Path(rendezvous))
    try:
        url = urlsplit(rendezvous)
        host, port = url.hostname, url.port
    except ValueError:  # the port is not a number, or a bracket of an IPv6 address is missing
        host, port = None, None
    if rendezvous.startswith("tcp://") and host and port:
        return _fixed(host, port, _key(meeting, identity))
    raise ValueError(f"rendezvous is {rendezvous!r}; it must be a directory, or tcp://HOST:PORT")


def _fixed(host: str, port: int, key: bytes) -> Rendezvous:
    address = ChiefAddress(key=key, host="", process="the chief", tcp_hosts=[host], tcp_port=port)
    return KnownRendezvous(f"{host}:{port}", address)


def _key(meeting: MeetingPlace, identity: RankIdentity) -> bytes:
    if meeting.key is None:
        raise JoinError(
            f"the ranks on {identity.cross_size} nodes have no key to prove who they are. Start them with torchrun or "
            "`python -m launch.torch_distributed`, and use DistributedContext.from_torch_distributed(); or give every "
            "rank the same secret in CORE_SDK_CHANNEL_KEY, and rendezvous='tcp://HOST:PORT'."
        )
    if len(meeting.key) < _MIN_KEY_BYTES:
        raise ValueError(f"CORE_SDK_CHANNEL_KEY has {len(meeting.key)} bytes; it must have at least {_MIN_KEY_BYTES}")
    return meeting.key
