"""The KV memory of one server: what is reserved, by whom never matters, and the most there was."""

import math


class KvMemory:
    """Bytes reserved for KV caches; above capacity is an error, never a state."""

    def __init__(self, capacity_bytes: float, beside: "list[KvMemory] | None" = None) -> None:
        """``beside``: what others reserve on the same GPU; this memory is added to it."""
        self._beside = [] if beside is None else beside
        self._beside.append(self)
        self.capacity_bytes = capacity_bytes  #: changes with the weights that are loaded
        self.held_bytes = 0.0
        self.taken_bytes = 0.0  #: ever reserved
        self.peak_bytes = 0.0  #: since `take_peak`
        self._sizes: dict[int, float] = {}

    @property
    def held_elsewhere_bytes(self) -> float:
        """Bytes reserved by others on the same GPU; they are not in the capacity."""
        return sum(other.held_bytes for other in self._beside if other is not self)

    @property
    def free_bytes(self) -> float:
        """Bytes that nobody has reserved."""
        return self.capacity_bytes - self.held_bytes

    def fits(self, size_bytes: float) -> bool:
        """Return whether so much more can be reserved."""
        return self.held_bytes + size_bytes <= self.capacity_bytes * (1 + 1e-12)

    def reserve(self, owner: int, size_bytes: float) -> None:
        """Reserve for an owner (added to what it holds)."""
        if not self.fits(size_bytes):
            raise RuntimeError(
                f"kv memory: {self.held_bytes + size_bytes:.0f} bytes would exceed the capacity of "
                f"{self.capacity_bytes:.0f}; the decision admitted more than fits"
            )
        self._sizes[owner] = self._sizes.get(owner, 0.0) + size_bytes
        self.held_bytes += size_bytes
        self.taken_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def release(self, owner: int) -> None:
        """Release all that an owner holds."""
        self.held_bytes -= self._sizes.pop(owner)
        if not self._sizes:
            self.held_bytes = 0.0  # leaves no rounding behind

    def size_bytes(self, owner: int) -> float:
        """Return what an owner holds."""
        return self._sizes.get(owner, 0.0)

    def take_peak(self) -> float:
        """Return the peak since the last call and start a new one."""
        peak, self.peak_bytes = self.peak_bytes, self.held_bytes
        return peak

    def exact_held_bytes(self) -> float:
        """Return the sum of all reservations without the rounding of running totals."""
        return math.fsum(self._sizes.values())
