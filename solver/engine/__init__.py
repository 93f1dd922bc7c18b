"""The engine of all solves: members work in steps on one goal, and a portfolio says which of them works next.

A *member* is a bound, a search or an exact model. It works for a step within the limits of its `Worker`, and
returns an `outcome` that is data. A `Portfolio` shares threads and time among its members until the goal is
reached, the limits are used up, or no member can do more. `solve`, `bound` and `plan` differ in their members
alone.
"""
