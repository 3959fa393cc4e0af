"""Models with further units: findings of soft evidence, and auxiliary variables of gates."""
