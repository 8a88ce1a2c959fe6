"""Handwritten digits, learned by the Trainer of transformers. No line of it knows of tracing."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from transformers import Trainer, TrainingArguments

images, labels = load_digits(return_X_y=True)
digits = [
    {"x": torch.tensor(image).float() / 16, "labels": int(label)}
    for image, label in zip(images, labels, strict=True)
]


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


torch.manual_seed(0)
trainer = Trainer(
    Digits(),
    TrainingArguments(
        "digits",
        num_train_epochs=2,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=32,
        gradient_accumulation_steps=4,
        learning_rate=0.05,
        eval_strategy="epoch",
        save_strategy="epoch",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    ),
    train_dataset=digits[:384],
    eval_dataset=digits[384:448],
    compute_metrics=lambda told: {"accuracy": (told[0].argmax(1) == told[1]).mean()},
)
trainer.train()
print("accuracy", round(float(trainer.state.log_history[-2]["eval_accuracy"]), 2))
