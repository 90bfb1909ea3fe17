"""Trains a small neural network in plain Python to separate the inside of a circle from its outside.

An ordinary run:   python train.py
A debug run:       python train.py --is-debug true --debug-relay-connection-name myhc --debug-port 5678
"""

import argparse
import math
import random

import relay_agent

Point = tuple[float, float, int]  # x, y, and 1 if inside the circle or 0 if outside


class Model:
    """Two inputs, a hidden layer with tanh, and one output: the probability of "inside"."""

    def __init__(self, hidden: int, rng: random.Random) -> None:
        self.hidden_weights = [[rng.gauss(0, 1), rng.gauss(0, 1), 0.0] for _ in range(hidden)]
        self.output_weights = [rng.gauss(0, 1) for _ in range(hidden + 1)]


def forward(model: Model, x: float, y: float) -> tuple[list[float], float]:
    """Return the hidden layer's activations and the probability."""
    activations = [math.tanh(wx * x + wy * y + bias) for wx, wy, bias in model.hidden_weights]
    activations.append(1.0)  # the weight of this element is the bias of the output
    score = sum(weight * value for weight, value in zip(model.output_weights, activations, strict=True))
    return activations, 1 / (1 + math.exp(-score))


def train_step(model: Model, batch: list[Point], epoch: int) -> float:
    """Move the weights one step down the gradient of a batch, and return the mean loss of the batch."""
    rate = 0.5 / (1 + 0.02 * epoch) / len(batch)
    loss = 0.0
    hidden_gradients = [[0.0, 0.0, 0.0] for _ in model.hidden_weights]
    output_gradients = [0.0 for _ in model.output_weights]
    for x, y, label in batch:
        activations, probability = forward(model, x, y)
        loss -= math.log(probability if label else 1 - probability)
        error = probability - label
        for unit, value in enumerate(activations):
            output_gradients[unit] += error * value
        for unit, gradient in enumerate(hidden_gradients):
            slope = error * model.output_weights[unit] * (1 - activations[unit] ** 2)
            gradient[:] = [gradient[0] + slope * x, gradient[1] + slope * y, gradient[2] + slope]
    for weights, gradient in zip(model.hidden_weights, hidden_gradients, strict=True):
        descend(weights, gradient, rate)
    descend(model.output_weights, output_gradients, rate)
    return loss / len(batch)


def descend(weights: list[float], gradient: list[float], rate: float) -> None:
    """Move weights against their gradient."""
    weights[:] = [weight - rate * slope for weight, slope in zip(weights, gradient, strict=True)]


def make_points(count: int, rng: random.Random) -> list[Point]:
    """Return random points in a square, each labelled as inside or outside the circle."""
    places = [(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(count)]
    return [(x, y, int(math.hypot(x, y) < 0.7)) for x, y in places]


def main() -> None:
    """Train, and print the loss after every epoch."""
    parser = argparse.ArgumentParser(description="Train a small network in plain Python.")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=20)
    relay_agent.add_debug_arguments(parser)
    options = parser.parse_args()

    relay_agent.start_remote_debugging_from_args()

    rng = random.Random(7)  # noqa: S311 - every run must draw the same numbers
    points = make_points(400, rng)
    model = Model(hidden=8, rng=rng)
    for epoch in range(1, options.epochs + 1):
        rng.shuffle(points)
        batches = [points[start : start + options.batch_size] for start in range(0, len(points), options.batch_size)]
        loss = sum(train_step(model, batch, epoch) for batch in batches) / len(batches)
        print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
    print(f"done: loss {loss:.4f} after {options.epochs} epochs")


if __name__ == "__main__":
    main()
