"""Prompt blocks that a server has seen, so that a prefill can begin behind them: least recently used go first."""

from collections import OrderedDict

from balancesim.core.request import PREFIX_BLOCK_TOKENS, Mode, Request
from balancesim.core.server import ServerSpec
from balancesim.units import GIB


def blocks_in(gib: float, spec: ServerSpec) -> int:
    """Return the blocks that this much memory holds, with the draft model's caches where there is one."""
    return int(gib * GIB / (PREFIX_BLOCK_TOKENS * spec.kv_bytes_per_token(Mode.SD)))


class PrefixCache:
    """KV caches of prompt blocks in memory beside the running requests' own (host memory, say).

    Reading them is free [A]. A block's hash stands for all tokens before it, too: equal hashes mean equal prefixes.
    """

    def __init__(self, blocks: int) -> None:
        self._most = blocks
        self._seen: OrderedDict[int, None] = OrderedDict()

    def cached_tokens(self, request: Request) -> int:
        """Return the tokens at the front of a prompt whose blocks are here; its last token is left to prefill."""
        found = 0
        for block in request.prefix_blocks:
            if block not in self._seen:
                break
            self._seen.move_to_end(block)
            found += 1
        return min(found * PREFIX_BLOCK_TOKENS, request.prompt_tokens - 1)

    def keep(self, request: Request) -> None:
        """Take in the whole blocks of a prompt that has been prefilled."""
        for block in request.prefix_blocks[: request.prompt_tokens // PREFIX_BLOCK_TOKENS]:
            self._seen[block] = None
            self._seen.move_to_end(block)
        while len(self._seen) > self._most:
            self._seen.popitem(last=False)
