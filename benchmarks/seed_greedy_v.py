"""The published greedy V-schedule, transcribed into plain Python as a yardstick for `greedy_v.py`.

The algorithm, its data structures and its order of decisions are those of `PipelineGraph.get_v_schedule`, by
the authors of the zero-bubble papers. Printing, communication and post-validation are left out. The
transcription asserts where the published code asserts, so it ends with an AssertionError or an IndexError on
instances that the published code cannot schedule. Only benchmarks and tests may import it.
"""

from __future__ import annotations

from collections import deque


class SeedGreedyV:
    """The greedy V-schedule of an instance with equal stages, of which each device has two.

    Parameters
    ----------
    n_stage, n_micro
        Number of devices, p, and number of microbatches.
    f_cost, b_cost, w_cost, c_cost
        Ticks of an F, a B, a W and a message.
    f_mem, b_mem, w_mem
        By how much an F, a B and a W change the memory of their device.
    max_mem
        Memory limit of each device; None stands for 2p activations.
    """

    def __init__(self, n_stage, n_micro, f_cost, b_cost, w_cost, c_cost, f_mem, b_mem, w_mem, max_mem=None):
        self.n_node = 6 * n_stage * n_micro
        self.n_stage = n_stage
        self.n_micro = n_micro
        self.c_cost = c_cost
        self.fbw_cost = [f_cost, b_cost, w_cost]
        self.fbw_mem = [f_mem, b_mem, w_mem]
        self.max_mem = max_mem or f_mem * n_stage * 2

    def get_id(self, cat, chunk, stage, micro):
        n = self.n_micro
        return cat * 2 * self.n_stage * n + chunk * self.n_stage * n + stage * n + micro

    def try_v_schedule(self, fill_f=True, fill_b=True, approved_bubble=None):
        p, n = self.n_stage, self.n_micro
        count = [[0] * 6 for _ in range(p)]
        end_time = [-1] * self.n_node
        cur_time = [0] * p
        mem = [0] * p
        stage_bubble = [0] * p
        pending_w = [deque() for _ in range(p)]
        schedule = [[] for _ in range(p)]
        if approved_bubble is None:
            approved_bubble = [-1] * p
        max_approved_bubble = max(approved_bubble)

        def get_max_stage_bubble(stage=-1):
            max_stage_bubble = max(0, *stage_bubble)
            if stage >= 0:
                max_stage_bubble = max(max_stage_bubble, max_approved_bubble - approved_bubble[stage])
            return max_stage_bubble

        def put_w(stage):
            assert len(pending_w[stage]) > 0
            put(2, pending_w[stage].popleft(), stage)

        def put(cat, chunk, stage):
            tmp = no_bubble = cur_time[stage] + self.fbw_cost[cat]
            cnt = count[stage][cat * 2 + chunk]
            assert cnt < n
            assert mem[stage] + self.fbw_mem[cat] <= self.max_mem
            if cat == 2:
                assert end_time[self.get_id(1, chunk, stage, cnt)] >= 0
            elif cat > 0 or chunk > 0:
                last = cat * 2 + chunk - 1
                assert end_time[self.get_id(last // 2, last % 2, stage, cnt)] >= 0
            if cat < 2:
                sender = stage + 1 if chunk == 1 else stage - 1
                if 0 <= sender < p:
                    sent = end_time[self.get_id(cat, chunk, sender, cnt)]
                    assert sent >= 0
                    tmp = max(tmp, sent + self.c_cost + self.fbw_cost[cat])
            if count[stage][0] > 0:
                stage_bubble[stage] += tmp - no_bubble
            end_time[self.get_id(cat, chunk, stage, cnt)] = tmp
            cur_time[stage] = tmp
            mem[stage] += self.fbw_mem[cat]
            schedule[stage].append((cat, chunk, cnt))
            if cat == 1:
                pending_w[stage].append(chunk)
            count[stage][cat * 2 + chunk] += 1

        for i in range(p):
            put(0, 0, i)
        for i in range(p - 1, -1, -1):
            if i == p - 1:
                put(0, 1, i)
                continue
            tmp = end_time[self.get_id(0, 1, i + 1, 0)] + self.c_cost
            while (
                mem[i] + self.fbw_mem[0] * (2 + i * 2) <= self.max_mem
                and cur_time[i] + self.fbw_cost[0] <= tmp
                and count[i][0] < n
            ):
                for j in range(i + 1):
                    put(0, 0, j)
            put(0, 1, i)
        iter_chunk = 0
        for i in range(1, p):
            while (
                count[i][0] + count[i][1] < count[i - 1][0] + count[i - 1][1]
                or count[i][1] <= count[i - 1][1] < n
            ):
                for j in range(p - 1, i - 1, -1):
                    if count[j][iter_chunk] < n:
                        put(0, iter_chunk, j)
                iter_chunk = 1 - iter_chunk

        for _ in range(2 * n):
            # check mem before putting b
            for i in range(p):
                while mem[i] + self.fbw_mem[1] > self.max_mem:
                    assert len(pending_w[i]) > 0
                    put_w(i)
            b0_ranks, b1_ranks = [], []
            for i in range(p):
                if count[i][3] >= count[i][2]:
                    b0_ranks.append(i)
                elif i == p - 1:
                    b1_ranks.append(i)
                else:
                    fa_id = self.get_id(1, 1, i + 1, count[i][3])
                    if end_time[fa_id] >= 0 or count[i][2] >= n:
                        b1_ranks.append(i)
                    else:
                        b0_ranks.append(i)
            b_ranks = [(i, 1) for i in reversed(b1_ranks)] + [(i, 0) for i in b0_ranks]
            for i, chunk in b_ranks:
                fa_id = -1
                if chunk == 1 and i < p - 1:
                    fa_id = self.get_id(1, 1, i + 1, count[i][3])
                if chunk == 0 and i > 0:
                    fa_id = self.get_id(1, 0, i - 1, count[i][2])
                while (
                    len(pending_w[i]) > 0
                    and fa_id >= 0
                    and end_time[fa_id] + self.c_cost >= cur_time[i] + self.fbw_cost[2]
                ):
                    put_w(i)  # fill the bubble
                if (
                    len(pending_w[i]) > 0
                    and end_time[fa_id] + self.c_cost - cur_time[i]
                    > get_max_stage_bubble(i) - stage_bubble[i]
                    and (chunk == 1 or fill_b)
                ):
                    put_w(i)
                put(1, chunk, i)

            # put f
            for i in range(p):
                if count[i][1] >= n:
                    continue
                put_item = None
                if count[i][1] >= count[i][0]:
                    put_item = 0
                elif i == p - 1 or end_time[self.get_id(0, 1, i + 1, count[i][1])] >= 0:
                    put_item = 1
                elif count[i][0] < n and (i == 0 or end_time[self.get_id(0, 0, i - 1, count[i][0])] >= 0):
                    put_item = 0
                if put_item is None:
                    continue
                # check mem before putting f
                while mem[i] + self.fbw_mem[0] > self.max_mem:
                    assert len(pending_w[i]) > 0
                    put_w(i)
                fa_id = -1
                if put_item == 0 and i > 0:
                    fa_id = self.get_id(0, 0, i - 1, count[i][0])
                if put_item == 1 and i < p - 1:
                    fa_id = self.get_id(0, 1, i + 1, count[i][1])
                while (
                    len(pending_w[i]) > 0
                    and fa_id >= 0
                    and end_time[fa_id] + self.c_cost >= cur_time[i] + self.fbw_cost[2]
                ):
                    put_w(i)  # fill the bubble
                if (
                    len(pending_w[i]) > 0
                    and end_time[fa_id] + self.c_cost - cur_time[i]
                    > get_max_stage_bubble(i) - stage_bubble[i]
                    and fill_f
                ):
                    put_w(i)
                put(0, put_item, i)

        for i in range(p):
            while len(pending_w[i]) > 0:
                put_w(i)

        max_bubble = get_max_stage_bubble()
        if max_approved_bubble < 0 or max_bubble < max_approved_bubble:
            again = self.try_v_schedule(fill_f=fill_f, fill_b=fill_b, approved_bubble=stage_bubble)
            if again[2] < max_bubble:
                return again
        return schedule, end_time, max_bubble

    def get_v_schedule(self):
        """Return the (kind, stage, microbatch) of each device's operations, and the bubble in ticks.

        Stages are numbered over the whole model.
        """
        best, max_bubble = None, None
        for fill_b in [True, False]:
            for fill_f in [True, False]:
                schedule, _, bubble = self.try_v_schedule(fill_b=fill_b, fill_f=fill_f)
                if max_bubble is None or bubble < max_bubble:
                    best, max_bubble = schedule, bubble
        return [self._global(device, ops) for device, ops in enumerate(best)], max_bubble

    def _global(self, device, ops):
        """Return operations (kind, chunk, microbatch) with the chunk replaced by the number of the stage.

        For B and W, chunk 0 of the published code is the chunk that runs first, which is the later stage.
        """
        stages = (device, 2 * self.n_stage - 1 - device)
        return [(cat, stages[chunk if cat == 0 else 1 - chunk], micro) for cat, chunk, micro in ops]
