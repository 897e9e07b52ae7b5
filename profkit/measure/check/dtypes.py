"""Names of element types  ->  how numpy and torch hold them; bfloat16 is bits to numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

BFLOAT16 = "bfloat16"  # numpy has none


def held_as(dtype: str) -> np.dtype[Any]:
    """The numpy type of the same size that an array of this type is kept as."""
    import numpy as np

    return np.dtype(np.uint16 if dtype == BFLOAT16 else dtype)


def values_of(array: Array, dtype: str) -> Array:
    """What the bits stand for: bfloat16 as fp32, which holds each value; others as they are."""
    import numpy as np

    if dtype != BFLOAT16:
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def tensor_of(array: Array, dtype: str) -> Any:
    """The array as a torch tensor of this type, on the CPU."""
    import numpy as np
    import torch

    tensor = torch.from_numpy(np.array(array))
    return tensor.view(torch.bfloat16) if dtype == BFLOAT16 else tensor


def values_of_tensor(tensor: Any) -> Array:
    """A tensor's values, on the CPU."""
    import torch

    plain: Array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()
    return plain
