/* PICK(name, what it does): the strategies, one file pick_<name>.c each. */
PICK(best, "the table's selected node")
PICK(band, "of those as good as the best (80 %), the one with the fewest requests in flight")
PICK(weighted_ewma, "least (in flight + 1) * peak EWMA of latency / weight; all up to eight, two choices above")
PICK(adaptive,
     "least (in flight + 1) / weight; of nodes out of the common, times how slow they are or how long they stand still")
PICK(ring, "weighted consistent hashing of the key")
PICK(round_robin, "each in turn")
PICK(weighted_round_robin, "smooth weighted turns")
PICK(least_conn, "least (in flight + 1) / weight")
PICK(p2c, "two at random by weight, the one with fewer in flight / weight")
PICK(peak_ewma, "two at random, the one with less peak EWMA * (in flight + 1)")
PICK(random3, "one of the best three at random")
