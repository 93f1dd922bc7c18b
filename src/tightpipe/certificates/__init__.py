"""Certificates: proofs of lower bounds that a small checker verifies without the rest of this package."""

from .certificate import Certificate, certify

__all__ = ["Certificate", "certify"]
