"""Blocks joined eight by eight: where two in one are better, how much further that goes."""

from profkit.lab.ablation.classes.joined import BlocksJoined


class EightBlocksJoined(BlocksJoined):
    id = "joined-eight"
    title = "little work per block, by 8"
    together = 8


ABLATION = EightBlocksJoined
