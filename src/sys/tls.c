#include "sys/tls_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sys/fs.h"

#define FILE_MAX (1 * MIB)

enum { FILE_CERTIFICATE, FILE_KEY, FILE_CA, FILE_CLIENT_CA, FILE_COUNT };

/* Which file it was: another one by this name has another number or time. */
struct stamp {
	dev_t device;
	ino_t inode;
	off_t size;
	struct timespec changed;
};

struct tls {
	char *paths[FILE_COUNT]; /* NULL: none */
	pthread_mutex_t lock;    /* protects the rest */
	struct stamp stamps[FILE_COUNT];
	struct tls_context *context;
};

int tls_err(struct err *err, enum err_code code, const char *what, const char *path)
{
	char reason[160] = "it is not understood";
	unsigned long number = ERR_get_error();

	if (number != 0 && ERR_reason_error_string(number))
		snprintf(reason, sizeof(reason), "%s", ERR_reason_error_string(number));
	ERR_clear_error();
	return err_set(err, code, "%s '%s': %s", what, path, reason);
}

/* --- contexts --- */

struct tls_context *tls_context_ref(struct tls_context *context)
{
	atomic_fetch_add(&context->holder_count, 1);
	return context;
}

void tls_context_drop(struct tls_context **ref)
{
	struct tls_context *context = *ref;

	*ref = NULL;
	if (!context || atomic_fetch_sub(&context->holder_count, 1) > 1)
		return;
	SSL_CTX_free(context->server);
	sk_X509_pop_free(context->ca, X509_free);
	if (context->key_text.data)
		mem_wipe(context->key_text.data, context->key_text.size);
	buf_fini(&context->certificate_text);
	buf_fini(&context->key_text);
	buf_fini(&context->ca_text);
	pthread_mutex_destroy(&context->ticket_lock);
	mem_wipe(context->tickets, sizeof(context->tickets));
	free(context);
}

struct str tls_context_certificate(const struct tls_context *context) { return buf_str(&context->certificate_text); }
struct str tls_context_key(const struct tls_context *context) { return buf_str(&context->key_text); }
struct str tls_context_ca(const struct tls_context *context) { return buf_str(&context->ca_text); }

/* --- reading the files --- */

/* A key with a passphrase cannot be used by a server that starts alone; OpenSSL would ask the terminal. */
static int refuse_passphrase(char *target UNUSED, int size UNUSED, int is_writing UNUSED, void *owner)
{
	*(bool *)owner = true;
	return -1;
}

/* All certificates of the text, at least one; NULL: err says what is wrong. */
static STACK_OF(X509) * read_certificates(struct str text, const char *path, struct err *err)
{
	STACK_OF(X509) *list = sk_X509_new_null();
	BIO *bio = BIO_new_mem_buf(text.data ? text.data : "", (int)text.size);

	MUST(list && bio);
	for (X509 *next; (next = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL;)
		MUST(sk_X509_push(list, next) > 0);
	BIO_free(bio);
	/* The end of the text shows as the lack of a further beginning; anything else is a certificate that cannot be read. */
	if (ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE && sk_X509_num(list) > 0) {
		ERR_clear_error();
		return list;
	}
	sk_X509_pop_free(list, X509_free);
	(void)tls_err(err, ERR_CONFIG, "no certificates can be read from", path);
	err_hint(err, "the file holds certificates in PEM: -----BEGIN CERTIFICATE-----");
	return NULL;
}

static EVP_PKEY *read_key(struct str text, const char *path, struct err *err)
{
	bool is_locked = false;
	BIO *bio = BIO_new_mem_buf(text.data ? text.data : "", (int)text.size);

	MUST(bio);
	EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, refuse_passphrase, &is_locked);
	BIO_free(bio);
	if (key)
		return key;
	if (is_locked) {
		ERR_clear_error();
		err_set(err, ERR_CONFIG, "the key '%s' has a passphrase, for which nobody could be asked", path);
		err_hint(err, "store it without one, readable by heng alone: openssl pkey -in KEY -out KEY.new");
	} else {
		(void)tls_err(err, ERR_CONFIG, "no private key can be read from", path);
		err_hint(err, "the file holds a key in PEM: -----BEGIN PRIVATE KEY-----");
	}
	return NULL;
}

static int64_t time_wall_us(const ASN1_TIME *when)
{
	struct tm parts;

	if (ASN1_TIME_to_tm(when, &parts) != 1)
		return 0;
	return (int64_t)timegm(&parts) * SEC_US;
}

/* Is every certificate of the chain good now? */
static int check_times(struct tls_context *context, STACK_OF(X509) * chain, const char *path, struct err *err)
{
	int64_t now_us = clock_wall_us();
	char when[CLOCK_TEXT_SIZE];

	context->expiry_wall_us = INT64_MAX;
	for (int i = 0; i < sk_X509_num(chain); i++) {
		const X509 *certificate = sk_X509_value(chain, i);
		int64_t begin_us = time_wall_us(X509_get0_notBefore(certificate));
		int64_t end_us = time_wall_us(X509_get0_notAfter(certificate));

		if (end_us <= now_us) {
			err_set(err, ERR_CONFIG, "certificate %d in '%s' expired at %s", i + 1, path,
				clock_text(end_us, when));
			err_hint(err, "have it renewed; docs/security.md shows how");
			return -ERR_CONFIG;
		}
		if (begin_us > now_us) {
			err_set(err, ERR_CONFIG, "certificate %d in '%s' is not good before %s", i + 1, path,
				clock_text(begin_us, when));
			err_hint(err, "is this machine's clock right?");
			return -ERR_CONFIG;
		}
		context->expiry_wall_us = min_i64(context->expiry_wall_us, end_us);
	}
	return 0;
}

static void stamp_of(const struct stat *facts, struct stamp *ret)
{
	*ret = (struct stamp){ facts->st_dev, facts->st_ino, facts->st_size, facts->st_ctim };
}

static bool stamp_is(const struct stamp *a, const struct stamp *b)
{
	return a->device == b->device && a->inode == b->inode && a->size == b->size &&
	       a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* The file's text; and, where that matters, whether only its owner may use it. */
static int read_file(const char *path, bool is_secret, struct buf *ret_text, struct err *err)
{
	struct stat facts;

	*ret_text = BUF_INIT(FILE_MAX);
	if (is_secret && stat(path, &facts) == 0 && (facts.st_mode & 077) != 0) {
		err_set(err, ERR_CONFIG, "the key '%s' may be used by others than its owner (mode %03o)", path,
			(unsigned)(facts.st_mode & 0777));
		err_hint(err, "chmod 600 %s", path);
		return -ERR_CONFIG;
	}
	int r = fs_read_file(path, FILE_MAX, ret_text, err);
	if (r < 0 && err)
		err->code = ERR_CONFIG;
	return r < 0 ? -ERR_CONFIG : 0;
}

static int read_own(struct tls *tls, struct tls_context *context, STACK_OF(X509) * client_ca, struct err *err)
{
	const char *certificate_path = tls->paths[FILE_CERTIFICATE], *key_path = tls->paths[FILE_KEY];
	int r = read_file(certificate_path, false, &context->certificate_text, err);

	if (r == 0)
		r = read_file(key_path, true, &context->key_text, err);
	if (r < 0)
		return r;
	STACK_OF(X509) *chain = read_certificates(buf_str(&context->certificate_text), certificate_path, err);
	EVP_PKEY *key = chain ? read_key(buf_str(&context->key_text), key_path, err) : NULL;
	r = key ? check_times(context, chain, certificate_path, err) : -ERR_CONFIG;
	if (r == 0 && X509_check_private_key(sk_X509_value(chain, 0), key) != 1) {
		ERR_clear_error();
		err_set(err, ERR_CONFIG, "the key '%s' is not that of the first certificate in '%s'", key_path,
			certificate_path);
		err_hint(err, "the own certificate stands first; is the key an older one?");
		r = -ERR_CONFIG;
	}
	if (r == 0)
		r = tls_server_make(context, key, chain, client_ca, err);
	EVP_PKEY_free(key);
	sk_X509_pop_free(chain, X509_free);
	return r;
}

static int read_all(struct tls *tls, struct tls_context **ret_context, struct err *err)
{
	struct tls_context *context = must_zalloc(1, sizeof(*context));
	AUTO(buf_fini) struct buf client_ca_text = BUF_INIT(FILE_MAX);
	STACK_OF(X509) *client_ca = NULL;
	int r = 0;

	atomic_init(&context->holder_count, 1);
	MUST(pthread_mutex_init(&context->ticket_lock, NULL) == 0);
	context->expiry_wall_us = INT64_MAX;
	ERR_clear_error();
	if (tls->paths[FILE_CA]) {
		r = read_file(tls->paths[FILE_CA], false, &context->ca_text, err);
		if (r == 0)
			context->ca = read_certificates(buf_str(&context->ca_text), tls->paths[FILE_CA], err);
		r = context->ca ? 0 : -ERR_CONFIG;
	}
	if (r == 0 && tls->paths[FILE_CLIENT_CA]) {
		r = read_file(tls->paths[FILE_CLIENT_CA], false, &client_ca_text, err);
		if (r == 0)
			client_ca = read_certificates(buf_str(&client_ca_text), tls->paths[FILE_CLIENT_CA], err);
		r = client_ca ? 0 : -ERR_CONFIG;
	}
	if (r == 0 && tls->paths[FILE_CERTIFICATE])
		r = read_own(tls, context, client_ca, err);
	sk_X509_pop_free(client_ca, X509_free);
	if (r < 0)
		tls_context_drop(&context);
	*ret_context = context;
	return r;
}

/* --- the holder --- */

/* Marks what the files are now; true when one is another than at the last look. */
static bool look(struct tls *tls)
{
	bool is_new = false;

	for (int i = 0; i < FILE_COUNT; i++) {
		struct stat facts;
		struct stamp stamp = { 0 };

		if (!tls->paths[i])
			continue;
		if (stat(tls->paths[i], &facts) == 0)
			stamp_of(&facts, &stamp);
		is_new |= !stamp_is(&stamp, &tls->stamps[i]);
		tls->stamps[i] = stamp;
	}
	return is_new;
}

static char *path_of(const char *given) { return given && given[0] != '\0' ? must_strdup(given) : NULL; }

int tls_new(const struct tls_files *files, struct tls **ret_tls, struct err *err)
{
	struct tls *tls = must_zalloc(1, sizeof(*tls));
	int r = 0;

	MUST(pthread_mutex_init(&tls->lock, NULL) == 0);
	tls->paths[FILE_CERTIFICATE] = path_of(files->certificate);
	tls->paths[FILE_KEY] = path_of(files->key);
	tls->paths[FILE_CA] = path_of(files->ca);
	tls->paths[FILE_CLIENT_CA] = path_of(files->client_ca);
	if (!tls->paths[FILE_CERTIFICATE] != !tls->paths[FILE_KEY])
		r = err_set(err, ERR_CONFIG, "a certificate and its key come together: the %s is missing",
			    tls->paths[FILE_KEY] ? "certificate" : "key");
	(void)look(tls);
	if (r == 0)
		r = read_all(tls, &tls->context, err);
	if (r < 0)
		tls_free(&tls);
	*ret_tls = tls;
	return r;
}

void tls_free(struct tls **ref)
{
	struct tls *tls = *ref;

	if (!tls)
		return;
	tls_context_drop(&tls->context);
	for (int i = 0; i < FILE_COUNT; i++)
		free(tls->paths[i]);
	pthread_mutex_destroy(&tls->lock);
	free(tls);
	*ref = NULL;
}

int tls_reload(struct tls *tls, bool is_forced, struct err *err)
{
	struct tls_context *context = NULL, *former = NULL;
	int r = 0;

	pthread_mutex_lock(&tls->lock);
	bool is_due = look(tls);
	pthread_mutex_unlock(&tls->lock);
	if (!is_due && !is_forced)
		return 0;
	r = read_all(tls, &context, err);
	if (r < 0)
		return err_wrap(err, "the certificates that were there stay in use");
	pthread_mutex_lock(&tls->lock);
	former = tls->context;
	tls->context = context;
	pthread_mutex_unlock(&tls->lock);
	tls_context_drop(&former);
	return 1;
}

struct tls_context *tls_take(struct tls *tls)
{
	pthread_mutex_lock(&tls->lock);
	struct tls_context *context = tls_context_ref(tls->context);
	pthread_mutex_unlock(&tls->lock);
	return context;
}

int64_t tls_expiry_wall_us(struct tls *tls)
{
	struct tls_context *context = tls_take(tls);
	int64_t expiry_wall_us = context->expiry_wall_us;

	tls_context_drop(&context);
	return expiry_wall_us;
}

/* The paths never change. */
bool tls_is_server(struct tls *tls) { return tls->paths[FILE_CERTIFICATE] != NULL; }
bool tls_has_ca(struct tls *tls) { return tls->paths[FILE_CA] != NULL; }

struct tls_peer *tls_own(struct tls *tls)
{
	struct tls_context *context = tls_take(tls);
	struct tls_peer *peer = context->server ? tls_peer_make(SSL_CTX_get0_certificate(context->server), true) : NULL;

	tls_context_drop(&context);
	return peer;
}
