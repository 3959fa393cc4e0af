"""Unit types: one file for each, with a dataclass that derives from Unit."""

from pgmengine.units.binary import Binary
from pgmengine.units.categorical import Categorical
from pgmengine.units.constant import Constant
from pgmengine.units.full_normal import FullNormal
from pgmengine.units.gaussian import Gaussian
from pgmengine.units.input import Input
from pgmengine.units.multivalued import MultiValued
from pgmengine.units.noisy_or import NoisyOr
from pgmengine.units.normal import Normal
from pgmengine.units.spin import Spin
from pgmengine.units.unit import Unit

__all__ = [
    "Binary",
    "Categorical",
    "Constant",
    "FullNormal",
    "Gaussian",
    "Input",
    "MultiValued",
    "NoisyOr",
    "Normal",
    "Spin",
    "Unit",
]
