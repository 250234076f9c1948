#include "sim/demand.h"

#include "sim/draw.h"

void demand_init(struct demand *demand, const struct scenario *scenario)
{
	double gap_ns = scenario_gap_ns(scenario);
	*demand = (struct demand){
		.seed = (uint64_t)scenario->seed,
		.router_count = (size_t)scenario->routers,
		.set_count = (size_t)scenario->sets,
		.service = scenario_service(scenario),
	};
	rng_seed(&demand->arrivals, draw_mix(demand->seed, DRAW_ARRIVALS, 0));
	rng_seed(&demand->key_draws, draw_mix(demand->seed, DRAW_KEYS, 0));
	rng_seed(&demand->work, draw_mix(demand->seed, DRAW_WORK, 0));
	keys_init(&demand->keys, (uint64_t)scenario->keys, (double)scenario->zipf_milli / 1e3);
	if (scenario->arrivals == SCENARIO_BURSTY)
		arrival_bursty(&demand->arrival, gap_ns, (double)scenario->burst_milli / 1e3,
			       (double)scenario->burst_length_us * 1e3, (double)scenario->burst_every_us * 1e3);
	else
		arrival_poisson(&demand->arrival, gap_ns);
}

int64_t demand_gap_ns(struct demand *demand) { return arrival_gap_ns(&demand->arrival, &demand->arrivals); }

void demand_draw(struct demand *demand, struct demand_request *ret_request)
{
	size_t router = (size_t)(((unsigned __int128)rng_u64(&demand->key_draws) * demand->router_count) >> 64);
	uint64_t rank = keys_draw(&demand->keys, &demand->key_draws);
	*ret_request = (struct demand_request){
		.key_hash = keys_hash(rank),
		.work_ns = service_draw_ns(&demand->service, &demand->work),
		.router = (uint16_t)router,
		.set = (uint16_t)(rank % demand->set_count),
	};
}

int64_t demand_retry_work_ns(const struct demand *demand, uint64_t number)
{
	struct rng rng;
	rng_seed(&rng, draw_mix(demand->seed, DRAW_RETRIES, number));
	return service_draw_ns(&demand->service, &rng);
}
