"""Time-outs and delayed requests, as data structures without a clock. Pure.

wheel.py        a hierarchical timing wheel: add and cancel in O(1)
purgatory.py    requests that wait for an event on a key or for a time-out

Driven by `runtime/expirer.py`.
"""
