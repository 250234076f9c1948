/* SERVICE(name, what it is): how much work a request is, in time on a node of nominal speed.
 * MODIFIER(name, what it does): what makes a node differ from nominal, each a list of the scenario. */
SERVICE(constant, "always the mean")
SERVICE(exponential, "exponential")
SERVICE(bimodal, "most are short, service_long_ppm of them service_long_milli times as long")
SERVICE(lognormal, "lognormal; service_sigma_milli is the sigma of the logarithm")
MODIFIER(slow, "a constant factor, from a time on, for a time")
MODIFIER(freeze, "stops altogether for a while, again and again: long garbage collections, stalls")
MODIFIER(compaction, "slower by a factor for a while, again and again")
MODIFIER(leak, "slower and slower since its start, until it is restarted")
MODIFIER(cold, "after it joined or restarted slower by a factor that fades with each request served")
