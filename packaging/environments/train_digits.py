#!/usr/bin/env python3
"""Trains a small classifier on the digits that scikit-learn carries with it; needs no network.

Prints one line per round so that a batch session's log has something to stream, and ends with
exit code 0 only when the held-out accuracy is plausible.
"""
import sys
import time

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 10

digits = load_digits()
pixels, held_pixels, names, held_names = train_test_split(
    digits.data / 16.0, digits.target, test_size=0.25, random_state=7
)
model = SGDClassifier(random_state=7)
accuracy = 0.0
for number in range(1, ROUNDS + 1):
    started = time.monotonic()
    model.partial_fit(pixels, names, classes=range(10))
    accuracy = model.score(held_pixels, held_names)
    print(f"round {number}/{ROUNDS} accuracy {accuracy:.4f} seconds {time.monotonic() - started:.3f}")
print(f"trained on {len(pixels)} digits, {accuracy:.1%} of {len(held_pixels)} held-out digits right")
sys.exit(0 if accuracy > 0.85 else 1)
