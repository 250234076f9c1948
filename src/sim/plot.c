/* The picture of a comparison, as SVG 1.1 without scripts or fonts of its own: bars of P99 and P99.9 for each policy above, P99 over time below. Both
 * axes of latency are logarithmic, as policies differ by hundreds. */
#include <math.h>

#include "sim/result.h"

#define PLOT_WIDTH   1000.0
#define PLOT_LEFT    84.0
#define PLOT_RIGHT   20.0
#define BARS_TOP     86.0
#define BARS_BOTTOM  336.0
#define LINES_TOP    476.0
#define LINES_BOTTOM 746.0
#define LEGEND_ROW   18.0
#define LEGEND_COLS  4

/* Paul Tol's "muted" scheme, which people with any kind of colour vision can tell apart, in an order that sets neighbours far apart. */
static const char *const line_colours[] = { "#332288", "#cc6677", "#117733", "#ddaa33", "#88ccee",
					    "#882255", "#44aa99", "#999933", "#aa4499", "#555555" };
/* When the colours come again the strokes differ. */
static const char *const line_dashes[] = { "", " stroke-dasharray=\"7 3\"", " stroke-dasharray=\"2 3\"",
					   " stroke-dasharray=\"9 3 2 3\"" };
#define P99_COLOUR  "#88aadd"
#define P999_COLOUR "#224488"

/* A logarithmic axis from a round value below all to one above. */
struct axis {
	double least_ms, most_ms; /* 1, 2 or 5 times a power of ten */
	double top, bottom;
};

static double round_down(double value)
{
	double decade = pow(10.0, floor(log10(value)));
	double lead = value / decade;
	return decade * (lead >= 5.0 ? 5.0 : lead >= 2.0 ? 2.0 : 1.0);
}

static double round_up(double value)
{
	double below = round_down(value);
	if (below >= value)
		return below;
	double decade = pow(10.0, floor(log10(below) + 1e-9));
	double lead = below / decade;
	return decade * (lead > 4.0 ? 10.0 : lead > 1.5 ? 5.0 : 2.0);
}

static void axis_take(struct axis *axis, int64_t value_ns)
{
	double value_ms = (double)max_i64(value_ns, 1000) / 1e6;
	if (value_ns < 0)
		return;
	axis->least_ms = axis->least_ms == 0 ? value_ms : fmin(axis->least_ms, value_ms);
	axis->most_ms = fmax(axis->most_ms, value_ms);
}

/* Some air at both ends; without any value it has a range all the same. */
static void axis_close(struct axis *axis)
{
	axis->least_ms = axis->least_ms == 0 ? 1.0 : round_down(axis->least_ms / 1.2);
	axis->most_ms = round_up(fmax(axis->most_ms, axis->least_ms) * 1.2);
}

static double axis_y(const struct axis *axis, int64_t value_ns)
{
	double value_ms = fmax((double)value_ns / 1e6, axis->least_ms);
	double part = log(value_ms / axis->least_ms) / log(axis->most_ms / axis->least_ms);
	return axis->bottom - part * (axis->bottom - axis->top);
}

/* Text from a scenario: nothing in it may be taken for markup. */
static void write_text(struct buf *buf, const char *text)
{
	for (struct str rest = str_from(text); rest.size > 0;) {
		size_t size = utf8_char_size(rest);
		char c = rest.data[0];
		if (size == 0 || (unsigned char)c < 0x20)
			buf_append_c(buf, "?");
		else if (c == '<' || c == '>' || c == '&' || c == '"')
			buf_printf(buf, "&#%d;", c);
		else
			buf_append(buf, (struct str){ rest.data, size });
		size = max_size(size, 1);
		rest = (struct str){ rest.data + size, rest.size - size };
	}
}

static void write_label(struct buf *buf, double x, double y, const char *attributes, const char *text)
{
	buf_printf(buf, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, attributes);
	write_text(buf, text);
	buf_append_c(buf, "</text>\n");
}

/* 20 µs, 0.7, 12, 340, 1.2 s: milliseconds go without saying where there is no room for their unit. Short for any value: at the left of the axis
 * there is room for seven characters. */
static char *value_text(double value_ms, const char *unit, char target[16])
{
	double value = value_ms;
	if (value_ms >= 999.5) {
		value = value_ms / 1e3;
		unit = " s";
	} else if (value_ms < 0.0995) {
		value = value_ms * 1e3;
		unit = " µs";
	}
	snprintf(target, 16, "%.*g%s", value >= 999.5 ? 4 : value >= 99.5 ? 3 : 2, value, unit);
	return target;
}

static void write_axis(struct buf *buf, const struct axis *axis)
{
	char text[16];
	bool is_wide = axis->most_ms / axis->least_ms > 2000;
	for (double tick = axis->least_ms; tick <= axis->most_ms * 1.001; tick = round_up(tick * 1.01)) {
		double y = axis_y(axis, (int64_t)(tick * 1e6 + 0.5));
		double lead = tick / pow(10.0, floor(log10(tick) + 1e-9));
		/* Over many decades the powers of ten are enough. */
		if (is_wide && lead > 1.5)
			continue;
		buf_printf(buf, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n",
			   PLOT_LEFT, y, PLOT_WIDTH - PLOT_RIGHT, y);
		write_label(buf, PLOT_LEFT - 8, y + 4, " text-anchor=\"end\" fill=\"#444444\"",
			    value_text(tick, " ms", text));
	}
	buf_printf(buf, "<path d=\"M%.1f %.1fV%.1fH%.1f\" fill=\"none\" stroke=\"#444444\"/>\n", PLOT_LEFT, axis->top,
		   axis->bottom, PLOT_WIDTH - PLOT_RIGHT);
	buf_printf(buf,
		   "<text transform=\"translate(20 %.1f) rotate(-90)\" text-anchor=\"middle\">latency (log "
		   "scale)</text>\n",
		   (axis->top + axis->bottom) / 2);
}

static void write_bar(struct buf *buf, const struct axis *axis, int64_t value_ns, double x, double width,
		      const char *colour)
{
	char text[16];
	if (value_ns < 0)
		return;
	double y = axis_y(axis, value_ns);
	buf_printf(buf, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, width,
		   axis->bottom - y, colour);
	write_label(buf, x + width / 2, y - 4, " text-anchor=\"middle\" font-size=\"10\"",
		    value_text((double)value_ns / 1e6, "", text));
}

static void write_bars(struct buf *buf, const struct result *const *results, size_t count)
{
	struct axis axis = { .top = BARS_TOP, .bottom = BARS_BOTTOM };
	double step = (PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT) / (double)max_size(count, 1);
	double width = fmin(step * 0.38, 44.0);
	for (size_t i = 0; i < count; i++) {
		axis_take(&axis, fine_quantile_ns(&results[i]->latency, 990000));
		axis_take(&axis, fine_quantile_ns(&results[i]->latency, 999000));
	}
	axis_close(&axis);
	write_label(buf, PLOT_LEFT, BARS_TOP - 22, " font-weight=\"bold\"",
		    "P99 and P99.9 by policy (ms where no unit is given)");
	buf_printf(buf, "<rect x=\"760\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", BARS_TOP - 32,
		   P99_COLOUR);
	write_label(buf, 777, BARS_TOP - 22, "", "P99");
	buf_printf(buf, "<rect x=\"830\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", BARS_TOP - 32,
		   P999_COLOUR);
	write_label(buf, 847, BARS_TOP - 22, "", "P99.9");
	write_axis(buf, &axis);
	for (size_t i = 0; i < count; i++) {
		double middle = PLOT_LEFT + step * ((double)i + 0.5);
		write_bar(buf, &axis, fine_quantile_ns(&results[i]->latency, 990000), middle - width, width,
			  P99_COLOUR);
		write_bar(buf, &axis, fine_quantile_ns(&results[i]->latency, 999000), middle, width, P999_COLOUR);
		buf_printf(buf, "<text transform=\"translate(%.1f %.1f) rotate(-28)\" text-anchor=\"end\">", middle + 6,
			   BARS_BOTTOM + 18);
		write_text(buf, results[i]->policy);
		buf_append_c(buf, "</text>\n");
	}
}

static double time_x(const struct result *result, int64_t time_ns)
{
	int64_t length_ns = result->stretch_ns * RESULT_POINTS;
	return PLOT_LEFT +
	       (PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT) * (double)(time_ns - result->warmup_ns) / (double)length_ns;
}

/* One stroke for each unbroken row of stretches in which something ended. */
static void write_line(struct buf *buf, const struct axis *axis, const struct result *result, size_t index)
{
	bool is_drawing = false, is_ours = strncmp(result->policy, "heng", 4) == 0;
	buf_append_c(buf, "<path d=\"");
	for (size_t i = 0; i < RESULT_POINTS; i++) {
		int64_t time_ns = result->warmup_ns + result->stretch_ns * (int64_t)i + result->stretch_ns / 2;
		if (result->points_ns[i] >= 0)
			buf_printf(buf, "%c%.1f %.1f", is_drawing ? 'L' : 'M', time_x(result, time_ns),
				   axis_y(axis, result->points_ns[i]));
		is_drawing = result->points_ns[i] >= 0;
	}
	buf_printf(buf, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" stroke-linejoin=\"round\"%s/>\n",
		   line_colours[index % COUNT_OF(line_colours)], is_ours ? "2.6" : "1.4",
		   line_dashes[index / COUNT_OF(line_colours) % COUNT_OF(line_dashes)]);
}

static void write_legend(struct buf *buf, const struct result *const *results, size_t count)
{
	double step = (PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT) / LEGEND_COLS;
	for (size_t i = 0; i < count; i++) {
		double x = PLOT_LEFT + step * (double)(i % LEGEND_COLS);
		double y = LINES_BOTTOM + 62 + LEGEND_ROW * (double)(i / LEGEND_COLS);
		buf_printf(buf, "<path d=\"M%.1f %.1fh26\" fill=\"none\" stroke=\"%s\" stroke-width=\"2.6\"%s/>\n", x,
			   y - 4, line_colours[i % COUNT_OF(line_colours)],
			   line_dashes[i / COUNT_OF(line_colours) % COUNT_OF(line_dashes)]);
		write_label(buf, x + 32, y, "", results[i]->policy);
	}
}

static void write_times(struct buf *buf, const struct result *result)
{
	double from = (double)result->warmup_ns / 1e9;
	double until = from + (double)(result->stretch_ns * RESULT_POINTS) / 1e9, step = round_up((until - from) / 8.0);
	for (double tick = ceil(from / step) * step; tick <= until; tick += step) {
		char text[32];
		double x = time_x(result, (int64_t)(tick * 1e9));
		snprintf(text, sizeof(text), "%.4g", tick);
		buf_printf(buf, "<path d=\"M%.1f %.1fv5\" stroke=\"#444444\"/>\n", x, LINES_BOTTOM);
		write_label(buf, x, LINES_BOTTOM + 18, " text-anchor=\"middle\" fill=\"#444444\"", text);
	}
}

static void write_lines(struct buf *buf, const struct result *const *results, size_t count)
{
	struct axis axis = { .top = LINES_TOP, .bottom = LINES_BOTTOM };
	for (size_t i = 0; i < count; i++) {
		for (size_t point = 0; point < RESULT_POINTS; point++)
			axis_take(&axis, results[i]->points_ns[point]);
	}
	axis_close(&axis);
	write_label(buf, PLOT_LEFT, LINES_TOP - 14, " font-weight=\"bold\"", "P99 over time");
	write_axis(buf, &axis);
	write_label(buf, (PLOT_LEFT + PLOT_WIDTH - PLOT_RIGHT) / 2, LINES_BOTTOM + 36, " text-anchor=\"middle\"",
		    "simulated time (s)");
	if (count > 0)
		write_times(buf, results[0]);
	for (size_t i = 0; i < count; i++)
		write_line(buf, &axis, results[i], i);
	write_legend(buf, results, count);
}

void result_write_svg(struct buf *buf, const struct scenario *scenario, const struct result *const *results,
		      size_t count)
{
	double height = LINES_BOTTOM + 62 + LEGEND_ROW * (double)((count + LEGEND_COLS - 1) / LEGEND_COLS);
	char text[128];
	buf_printf(buf,
		   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
		   "font-family=\"sans-serif\" font-size=\"12\" fill=\"#111111\">\n"
		   "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
		   PLOT_WIDTH, height, PLOT_WIDTH, height);
	write_label(buf, PLOT_LEFT, 26, " font-size=\"16\" font-weight=\"bold\"", scenario->title);
	snprintf(text, sizeof(text), "%lld requests, warm-up of %lld s left out, seed %lld",
		 (long long)scenario->requests, (long long)(scenario->warmup_us / SEC_US), (long long)scenario->seed);
	write_label(buf, PLOT_LEFT, 44, " fill=\"#444444\"", text);
	write_bars(buf, results, count);
	write_lines(buf, results, count);
	buf_append_c(buf, "</svg>\n");
}
