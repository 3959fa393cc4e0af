"""Negative phases: the second expectation of the likelihood gradient, one file each."""

from pgmengine.learn.negative.adaptive_sap import AdaptiveSAP
from pgmengine.learn.negative.cast import CAST
from pgmengine.learn.negative.cd import CD
from pgmengine.learn.negative.exact_gradient import ExactGradient
from pgmengine.learn.negative.fast_pcd import FastPCD
from pgmengine.learn.negative.pcd import PCD
from pgmengine.learn.negative.pseudo_gradient import PseudoGradient
from pgmengine.learn.negative.pt import PT
from pgmengine.learn.negative.trans_sap import TransSAP

__all__ = [
    "CAST",
    "CD",
    "PCD",
    "PT",
    "AdaptiveSAP",
    "ExactGradient",
    "FastPCD",
    "PseudoGradient",
    "TransSAP",
]
