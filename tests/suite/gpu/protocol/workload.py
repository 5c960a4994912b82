"""What runs in slices for groups E, F and H of the protocol, with PyTorch and made-up data.

    python3 workload.py train           one small training; says `done SECONDS LOSS`
    python3 workload.py whole TASKS     so many of them one after the other in one process
    python3 workload.py requests        slice 0 trains for 20 s, the others answer 25 requests a second and
                                        say `requests COUNT P50 P99` in milliseconds
    python3 workload.py fault           slice 0 breaks its context after 3 s, the others compute for 10 s and
                                        say `whole COUNT WRONG`
"""

import os
import random
import sys
import time

import torch

SLICE = int(os.environ.get("FARDEL_SLICE", "0"))


def train(steps=1500):
    """A small network on pictures of 28 × 28, as 50 students would begin."""
    torch.manual_seed(SLICE)
    device = torch.device("cuda")
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(32 * 49, 10),
    ).to(device)
    pictures = torch.randn(4096, 1, 28, 28, device=device)
    labels = torch.randint(0, 10, (4096,), device=device)
    steepest = torch.optim.SGD(model.parameters(), lr=0.05)
    loss = None
    for step in range(steps):
        at = step * 64 % 4096
        loss = torch.nn.functional.cross_entropy(model(pictures[at : at + 64]), labels[at : at + 64])
        steepest.zero_grad()
        loss.backward()
        steepest.step()
    return loss.item()


def requests(seconds=20):
    if SLICE == 0:
        until = time.time() + seconds
        while time.time() < until:
            train(100)
        return
    matrix = torch.randn(2048, 2048, device="cuda")
    dice, took = random.Random(SLICE), []
    until = time.time() + seconds - 2
    while time.time() < until:
        time.sleep(dice.expovariate(25))
        begun = time.perf_counter()
        for _ in range(6):
            matrix @ matrix
        torch.cuda.synchronize()
        took.append((time.perf_counter() - begun) * 1000)
    took.sort()
    print("requests", len(took), f"{took[len(took) // 2]:.2f} {took[len(took) * 99 // 100]:.2f}")


def fault():
    if SLICE == 0:
        table = torch.zeros(16, device="cuda")
        time.sleep(3)
        # An index far outside: the device ends the kernel, and the context is lost.
        try:
            table[torch.tensor([1 << 40], device="cuda")] = 1
            torch.cuda.synchronize()
        except RuntimeError as fault_of_ours:
            print("broken", type(fault_of_ours).__name__)
        return
    matrix = torch.eye(1024, device="cuda")
    count, wrong, until = 0, 0, time.time() + 10
    while time.time() < until:
        wrong += int((matrix @ matrix != matrix).any().item())
        count += 1
    print("whole", count, wrong)


def main():
    begun = time.perf_counter()
    match sys.argv[1:]:
        case ["train"]:
            loss = train()
            print(f"done {time.perf_counter() - begun:.2f} {loss:.4f}")
        case ["whole", tasks]:
            for _ in range(int(tasks)):
                train()
            print(f"done {time.perf_counter() - begun:.2f}")
        case ["requests"]:
            requests()
        case ["fault"]:
            fault()
        case _:
            sys.exit(__doc__)


main()
