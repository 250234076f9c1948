#include <fcntl.h>
#include <unistd.h>

#include "sys/fs.h"
#include "sys/host_inside.h"

/* About 200,000 connections, and some tens of milliseconds of kernel time. */
#define TCP_TEXT_MAX (32 * MIB)
/* More than a namespace can hold: the kernel sums the gauge over CPUs without a lock, so that it may come out below 0 for a moment. */
#define TCP_CONNS_MAX 1000000000
/* Of one interface between two calls: no wire is that fast, and the sum over all does not overflow. */
#define BYTES_MAX (INT64_MAX / HOST_NET_INTERFACES_MAX)
#define TOO_MANY  (-2)

static bool read_interface(struct str line, struct host_interface *ret_interface)
{
	struct str name, word;
	int64_t *const fields[9] = { &ret_interface->rx_bytes, [8] = &ret_interface->tx_bytes };

	/* "  eth0: 12 ..." and, in old kernels, "  eth0:12 ..." */
	if (!str_cut(&line, ':', &name) ||
	    !str_copy(str_trim(name), ret_interface->name, sizeof(ret_interface->name)) ||
	    ret_interface->name[0] == '\0')
		return false;
	for (size_t i = 0; i < COUNT_OF(fields); i++) {
		if (!host_word(&line, &word) || (fields[i] && !host_number(word, fields[i])))
			return false;
	}
	return true;
}

/* What came and went over one interface since the former call. One that is new was not seen to carry anything; one that is gone carries nothing. */
static bool add_interface(const struct host_net *net, const struct host_interface *now, int64_t *rx_bytes,
			  int64_t *tx_bytes)
{
	for (size_t i = 0; i < net->former_count; i++) {
		const struct host_interface *former = &net->former[i];

		if (strcmp(former->name, now->name) != 0)
			continue;
		if (now->rx_bytes < former->rx_bytes || now->tx_bytes < former->tx_bytes ||
		    now->rx_bytes - former->rx_bytes > BYTES_MAX || now->tx_bytes - former->tx_bytes > BYTES_MAX)
			return false;
		*rx_bytes += now->rx_bytes - former->rx_bytes;
		*tx_bytes += now->tx_bytes - former->tx_bytes;
		return true;
	}
	return true;
}

static void measure_traffic(struct host_net *net, struct host_files *files, int64_t elapsed_us,
			    struct host_facts *facts)
{
	static const size_t max = HOST_NET_INTERFACES_MAX;
	struct host_interface found[HOST_NET_INTERFACES_MAX];
	size_t found_count = 0;
	int64_t rx_bytes = 0, tx_bytes = 0;
	bool is_known, has_others = false;
	struct str text, line;

	if (!host_read(files, &text, "%s/net/dev", files->process)) {
		net->former_count = 0;
		return;
	}
	while (found_count < max && str_cut(&text, '\n', &line)) {
		if (!read_interface(line, &found[found_count]))
			continue;
		has_others = has_others || strcmp(found[found_count].name, "lo") != 0;
		found_count++;
	}
	is_known = found_count > 0 && net->former_count > 0;
	for (size_t i = 0; i < found_count && is_known; i++) {
		if (!has_others || strcmp(found[i].name, "lo") != 0)
			is_known = add_interface(net, &found[i], &rx_bytes, &tx_bytes);
	}
	memcpy(net->former, found, found_count * sizeof(found[0]));
	net->former_count = found_count;
	if (is_known) {
		facts->net_rx_bps = host_scale(rx_bytes, 8 * SEC_US, elapsed_us);
		facts->net_tx_bps = host_scale(tx_bytes, 8 * SEC_US, elapsed_us);
	}
}

/* Two lines that begin with "Tcp:", the first with the names, the second with the numbers. */
static int64_t read_gauge(struct host_files *files)
{
	struct str text, names = STR_NONE, line, name, word;
	int64_t value;

	if (!host_read(files, &text, "%s/net/snmp", files->process))
		return HOST_UNKNOWN;
	while (str_cut(&text, '\n', &line)) {
		if (!str_starts(line, STR("Tcp:")))
			continue;
		if (names.size == 0) {
			names = line;
			continue;
		}
		while (host_word(&names, &name) && host_word(&line, &word)) {
			if (str_eq_c(name, "CurrEstab"))
				return host_number(word, &value) && value <= TCP_CONNS_MAX ? value : HOST_UNKNOWN;
		}
		break;
	}
	return HOST_UNKNOWN;
}

/* "  12: 0100007F:1F90 0200007F:C350 01 ...": the fourth word is the state, 01 is established. */
static bool is_established(struct str line)
{
	struct str word;

	for (int i = 0; i < 3; i++) {
		if (!host_word(&line, &word))
			return false;
	}
	return host_word(&line, &word) && str_eq_c(word, "01");
}

/* Unknown: the file is missing. TOO_MANY: it goes on beyond the bound, or is no such file. */
static int64_t count_lines(struct host_files *files, const char *name)
{
	AUTO(fs_close) int fd = -1;
	char path[PATH_MAX], piece[16384];
	size_t kept_size = 0, size = 1;
	int64_t count = 0;

	if (host_path(files, path, "%s/net/%s", files->process, name))
		fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return HOST_UNKNOWN;
	for (size_t total = 0; size > 0; total += size) {
		struct str rest, line;

		if (total > TCP_TEXT_MAX || kept_size == sizeof(piece) ||
		    fs_read_all(fd, piece + kept_size, sizeof(piece) - kept_size, -1, &size, NULL) < 0)
			return TOO_MANY;
		rest = (struct str){ piece, kept_size + size };
		while (rest.size > 0 && memchr(rest.data, '\n', rest.size) && str_cut(&rest, '\n', &line))
			count += is_established(line);
		kept_size = rest.size;
		if (kept_size > 0)
			memmove(piece, rest.data, kept_size);
	}
	return count;
}

/* "TCP: inuse 12 orphan 0 ..." */
static int64_t read_in_use(struct host_files *files, const char *file, const char *key)
{
	struct str text, line, word;
	int64_t value;

	if (!host_read(files, &text, "%s/net/%s", files->process, file))
		return HOST_UNKNOWN;
	while (str_cut(&text, '\n', &line)) {
		if (host_word(&line, &word) && str_eq_c(word, key) && host_word(&line, &word) &&
		    str_eq_c(word, "inuse") && host_number_next(&line, &value) && value <= TCP_CONNS_MAX)
			return value;
	}
	return HOST_UNKNOWN;
}

/* Of the two families, either may be missing in the kernel. */
static int64_t add_known(int64_t a, int64_t b) { return a == HOST_UNKNOWN ? b : b == HOST_UNKNOWN ? a : a + b; }

static int64_t find_tcp(struct host_files *files)
{
	int64_t count = read_gauge(files);

	if (count == HOST_UNKNOWN) {
		const int64_t v4 = count_lines(files, "tcp"), v6 = count_lines(files, "tcp6");
		count = v4 == TOO_MANY || v6 == TOO_MANY ? HOST_UNKNOWN : add_known(v4, v6);
	}
	if (count == HOST_UNKNOWN)
		count = add_known(read_in_use(files, "sockstat", "TCP:"), read_in_use(files, "sockstat6", "TCP6:"));
	return count;
}

void host_net_measure(struct host_net *net, struct host_files *files, int64_t elapsed_us, struct host_facts *facts)
{
	measure_traffic(net, files, elapsed_us, facts);
	facts->tcp_conns = find_tcp(files);
}
