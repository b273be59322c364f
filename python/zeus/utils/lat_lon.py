"""Where this machine is, by its address on the internet."""

from __future__ import annotations

import json
import logging
from typing import Any

logger = logging.getLogger(__name__)

_URL = "http://ipinfo.io/json"
_TIMEOUT_S = 10.0


def get_ip_lat_long() -> tuple[float, float]:
    """Ask ipinfo.io for the latitude and longitude of this machine's address, in degrees.

    Raises:
        OSError: It cannot be reached, or refuses; `requests.RequestException`, which is one, where
            requests is installed.
        ValueError: Its answer tells no location.
    """
    try:
        answer = _get_json(_URL)
        latitude, longitude = answer["loc"].split(",")
        return float(latitude), float(longitude)
    except OSError as error:
        logger.error("Cannot ask %s for the location of this machine: %s", _URL, error)
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{_URL} tells no location of this machine; give the latitude and longitude yourself"
        ) from error


def _get_json(url: str) -> Any:
    try:
        import requests
    except ImportError:
        from urllib.request import urlopen

        with urlopen(url, timeout=_TIMEOUT_S) as answer:
            return json.load(answer)
    response = requests.get(url, timeout=_TIMEOUT_S)
    if not getattr(response, "ok", True):  # A stand-in for a response may have a body only.
        response.raise_for_status()
    return response.json()
