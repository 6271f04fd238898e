"""Small trainings: each gives its losses."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, groups=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.classes = nn.Linear(64, 5)

    def forward(self, x):
        return self.classes(self.features(x).flatten(1))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classes = nn.Linear(16, 5)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.classes(self.encoder(self.embedding(x), mask=mask, is_causal=True).mean(1))


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(16, 8, batch_first=True)
        self.classes = nn.Linear(8, 5)

    def forward(self, x):
        return self.classes(self.gru(self.lstm(x)[0])[0][:, -1])


def train(model, inputs, device, optimizer, amp=None, steps=4):
    torch.manual_seed(1)
    model = model().to(device)
    data = [inputs() for _ in range(steps)]
    labels = [torch.randint(5, (x.shape[0],)) for x in data]
    steps_of = optimizer(model.parameters())
    scaler = torch.amp.GradScaler(device, enabled=amp == torch.float16, init_scale=64.0)
    if device == "cuda":
        data = [x.pin_memory() for x in data]
    losses = []
    for x, label in zip(data, labels):
        x = x.to(device, non_blocking=True)
        steps_of.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=amp or torch.float32, enabled=amp is not None):
            loss = nn.functional.cross_entropy(model(x), label.to(device))
        scaler.scale(loss).backward()
        scaler.unscale_(steps_of)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(steps_of)
        scaler.update()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def images():
    return torch.randn(4, 3, 8, 8)


def tokens():
    return torch.randint(50, (4, 7))


def sequences():
    return torch.randn(4, 5, 6)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


def fused_adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-2, fused=True)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, nesterov=True)


TRAININGS = {
    "a convolutional net with AdamW": (Net, images, adamw),
    "a convolutional net with a fused Adam": (Net, images, fused_adam),
    "a transformer with AdamW": (Text, tokens, adamw),
    "recurrent nets with SGD": (Sequence, sequences, sgd),
    "a transformer in bfloat16": (Text, tokens, adamw, torch.bfloat16),
    "a convolutional net in float16 with a scaler": (Net, images, sgd, torch.float16),
}
