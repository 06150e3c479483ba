"""A small grey picture as the address of an image, inside a page."""

import base64
import io

import numpy as np


def picture(pixels: np.ndarray) -> str:
    """The least value black, the greatest white."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "Pictures need pillow: in a clone of bilevax, pip install '.[tools]'."
        ) from error
    x = np.asarray(pixels, float)
    x = (x - x.min()) / (np.ptp(x) or 1.0)
    file = io.BytesIO()
    Image.fromarray(np.rint(255 * x).astype(np.uint8)).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
