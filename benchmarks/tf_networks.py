"""msaccel's networks in Keras, layer by layer; images are (N, H, W, C), the order that TensorFlow computes fastest."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf
from keras import layers

from msaccel import schema
from msaccel.models.airbench import AirbenchSettings
from msaccel.models.gpt import GptSettings
from msaccel.models.resnet50 import BLOCKS, WIDTHS, stem_of


def build(model: schema.ModelSettings) -> keras.Model:
    """The network that `model` names, with Keras' own initialisation."""
    if isinstance(model, GptSettings):
        return gpt(model)
    channels, *sides = model.input_shape()
    inputs = keras.Input((*sides, channels))
    if isinstance(model, schema.ResNetSettings):
        return keras.Model(inputs, resnet(inputs, model))
    assert model.classes
    if isinstance(model, AirbenchSettings):
        return keras.Model(inputs, airbench(inputs, model.widths, model.classes))
    return keras.Model(inputs, {"lenet": lenet, "mlp": mlp}[model.name](inputs, model.classes))


def lenet(x: tf.Tensor, classes: int) -> tf.Tensor:
    for channels in (6, 16):
        x = layers.ReLU()(layers.MaxPooling2D(2)(layers.Conv2D(channels, 5, use_bias=False)(x)))
    return dense(layers.Flatten()(x), 120, 84, classes)


def mlp(x: tf.Tensor, classes: int) -> tf.Tensor:
    return dense(layers.Flatten()(x), 512, 512, classes)


def dense(x: tf.Tensor, *widths: int) -> tf.Tensor:
    """Dense layers, all but the last with a ReLU."""
    for width in widths[:-1]:
        x = layers.Dense(width, activation="relu")(x)
    return layers.Dense(widths[-1])(x)


def conv(x: tf.Tensor, channels: int, kernel_size: int, stride: int = 1) -> tf.Tensor:
    """A convolution with PyTorch's padding, which differs from Keras' `same` where the stride is 2, and its norm."""
    if kernel_size > 1:
        x = layers.ZeroPadding2D(kernel_size // 2)(x)
    x = layers.Conv2D(channels, kernel_size, stride, use_bias=False)(x)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-4)(x)


def block(x: tf.Tensor, width: int, stride: int, bottleneck: bool) -> tf.Tensor:
    """A residual block of v1.5: two 3 × 3 convolutions, or a bottleneck of three with the stride in its 3 × 3."""
    channels = 4 * width if bottleneck else width
    if bottleneck:
        y = layers.ReLU()(conv(x, width, 1))
        y = conv(layers.ReLU()(conv(y, width, 3, stride)), channels, 1)
    else:
        y = conv(layers.ReLU()(conv(x, width, 3, stride)), channels, 3)
    if stride != 1 or x.shape[-1] != channels:
        x = conv(x, channels, 1, stride)
    return layers.ReLU()(layers.Add()([y, x]))


def resnet(x: tf.Tensor, model: schema.ResNetSettings) -> tf.Tensor:
    """ResNet v1.5 with batch norm; the stem as `model.stem` says."""
    assert model.norm == "batch" and model.version == "v1.5"
    if stem_of(model) == "small":
        x = layers.ReLU()(conv(x, WIDTHS[0], 3))
    else:
        x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(layers.ReLU()(conv(x, WIDTHS[0], 7, 2))))
    for stage, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS[model.depth], strict=True)):
        for position in range(blocks):
            x = block(x, width, 2 if stage and not position else 1, model.depth >= 50)
    return layers.Dense(model.classes)(layers.GlobalAveragePooling2D()(x))


def airbench(x: tf.Tensor, widths: Sequence[int], classes: int) -> tf.Tensor:
    """airbench94; the first layer is not trained."""

    def gelu(y: tf.Tensor) -> tf.Tensor:
        return layers.Activation(lambda values: keras.activations.gelu(values, approximate=True))(y)

    def normed(y: tf.Tensor) -> tf.Tensor:
        return gelu(layers.BatchNormalization(momentum=0.6, epsilon=1e-5, scale=False)(y))

    x = gelu(layers.Conv2D(24, 2, use_bias=False, trainable=False)(x))
    for width in widths:
        x = normed(layers.MaxPooling2D(2)(layers.Conv2D(width, 3, padding="same", use_bias=False)(x)))
        x = normed(layers.Conv2D(width, 3, padding="same", use_bias=False)(x))
    return layers.Dense(classes, use_bias=False)(layers.Flatten()(layers.MaxPooling2D(3)(x))) / 9


class Gpt(keras.Model):
    """Characters (N, T) to logits (N, T, vocabulary); embedding and output share a matrix."""

    def __init__(self, model: GptSettings) -> None:
        super().__init__()
        assert model.classes is not None and model.tied and not model.dropout
        width, heads = model.width, model.heads
        normal = keras.initializers.RandomNormal(stddev=0.02)
        self.embedding = self.add_weight(shape=(model.classes, width), initializer=normal)
        self.positions = self.add_weight(shape=(model.block, width), initializer=normal)

        def norm() -> keras.layers.Layer:
            return layers.LayerNormalization(epsilon=1e-5, center=False)

        self.blocks = [
            (
                norm(),
                layers.MultiHeadAttention(heads, width // heads, use_bias=False),
                norm(),
                layers.Dense(4 * width, use_bias=False),
                layers.Dense(width, use_bias=False),
            )
            for _ in range(model.layers)
        ]
        self.norm = norm()

    def call(self, x: tf.Tensor) -> tf.Tensor:
        y = tf.gather(self.embedding, x) + self.positions
        for norm1, attention, norm2, wide, narrow in self.blocks:
            normed = norm1(y)
            y = y + attention(normed, normed, use_causal_mask=True)
            y = y + narrow(keras.activations.gelu(wide(norm2(y)), approximate=True))
        return tf.matmul(self.norm(y), self.embedding, transpose_b=True)


def gpt(model: GptSettings) -> keras.Model:
    return Gpt(model)
