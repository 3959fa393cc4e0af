"""One of every trainer, for tests that all of them pass."""

import pgmengine as pgm

TRAINERS = {
    "exact": pgm.ExactGradient(),
    "cd": pgm.CD(k=20),
    "pcd": pgm.PCD(k=2, chains=500),
    "fast": pgm.FastPCD(k=2, chains=500, rate=0.01),
    "pt": pgm.PT(temperatures=3, k=2, chains=200),
    "trans": pgm.TransSAP(betas=[0.5, 0.8, 1.0], k=1, chains=300),
    "adaptive": pgm.AdaptiveSAP(betas=[0.5, 0.8, 1.0], every=5, steps=5, k=2, chains=500),
    "cast": pgm.CAST(betas=[0.5, 0.8, 1.0], k=2, chains=300, swap_every=10),
}
