/* The schema of the SQL stores, one row a migration: MIGRATION(text, then). Row i brings a database from schema i to i + 1; `then` does what SQL cannot
 * say, or is NULL. A row that was released is never edited: append the next one.
 *
 * One text serves both engines. It is SQLite's, and PostgreSQL's engine puts its own words for INTEGER, INTEGER PRIMARY KEY, BLOB, STRICT and WITHOUT
 * ROWID; "user" is quoted; what differs by more is a macro of the engine's (SQL_AUDIT_KEEPS: the triggers that
 * keep the rows of the audit as they are, and from being deleted where the condition holds).
 *
 * Big tables hang on the transfer's number, not its 26 letters; the *_view views are for people with a shell. Names and paths are bytes, so they
 * are blobs. The counters in transfers are kept by the transaction that changes the chunks. */
MIGRATION(
	"CREATE TABLE transfers (num INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, \"user\" TEXT NOT NULL, batch "
	"BLOB NOT NULL, source TEXT NOT NULL, manifest_digest TEXT NOT NULL, manifest_crc32c INTEGER NOT NULL, "
	"digest TEXT NOT NULL, chunk_bytes INTEGER NOT NULL, pack_bytes INTEGER NOT NULL, entry_count INTEGER NOT "
	"NULL DEFAULT 0, file_count INTEGER NOT NULL DEFAULT 0, object_count INTEGER NOT NULL DEFAULT 0, chunk_count "
	"INTEGER NOT NULL DEFAULT 0, total_bytes INTEGER NOT NULL DEFAULT 0, pending_count INTEGER NOT NULL DEFAULT "
	"0, stored_count INTEGER NOT NULL DEFAULT 0, digest_failed_count INTEGER NOT NULL DEFAULT 0, lost_count "
	"INTEGER NOT NULL DEFAULT 0, merged_count INTEGER NOT NULL DEFAULT 0, stored_bytes INTEGER NOT NULL DEFAULT "
	"0, state TEXT NOT NULL, version INTEGER NOT NULL, is_retryable INTEGER NOT NULL, priority INTEGER NOT NULL, "
	"reason TEXT NOT NULL, client_addr TEXT NOT NULL, created_us INTEGER NOT NULL, updated_us INTEGER NOT NULL, "
	"completed_us INTEGER NOT NULL) STRICT;"
	"CREATE INDEX transfers_batch ON transfers (batch);"
	"CREATE INDEX transfers_user ON transfers (\"user\");"
	"CREATE TABLE entries (transfer INTEGER NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL, mode INTEGER NOT "
	"NULL, mtime_ns INTEGER NOT NULL, size_bytes INTEGER NOT NULL, path BLOB NOT NULL, target BLOB NOT NULL, "
	"file_id INTEGER NOT NULL, object_offset INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (transfer, "
	"seq)) STRICT, WITHOUT ROWID;"
	"CREATE TABLE objects (transfer INTEGER NOT NULL, file_id INTEGER NOT NULL, is_pack INTEGER NOT NULL, "
	"first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, size_bytes INTEGER NOT NULL, chunk_count INTEGER NOT "
	"NULL, PRIMARY KEY (transfer, file_id)) STRICT, WITHOUT ROWID;"
	"CREATE TABLE chunks (transfer INTEGER NOT NULL, file_id INTEGER NOT NULL, chunk_index INTEGER NOT NULL, "
	"size_bytes INTEGER NOT NULL, state TEXT NOT NULL, target_node TEXT NOT NULL, actual_node TEXT NOT NULL, "
	"digest TEXT NOT NULL, updated_us INTEGER NOT NULL, PRIMARY KEY (transfer, file_id, chunk_index)) STRICT, "
	"WITHOUT ROWID;"
	"CREATE TABLE audit (id INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, kind TEXT NOT NULL, transfer_id TEXT, "
	"\"user\" TEXT, node_id TEXT, outcome TEXT, detail TEXT, file_id INTEGER, chunk_index INTEGER, result TEXT, "
	"size_bytes INTEGER, digest TEXT, node_addr TEXT, client_addr TEXT, request_id TEXT, user_agent TEXT, "
	"disk_path TEXT, started_us INTEGER, finished_us INTEGER) STRICT;"
	"CREATE INDEX audit_transfer ON audit (transfer_id);" SQL_AUDIT_KEEPS(
		"true") "CREATE TABLE nodes (id TEXT "
			"NOT NULL PRIMARY KEY, addr "
			"TEXT NOT NULL, incarnation "
			"TEXT NOT NULL, weight_milli "
			"INTEGER NOT NULL, domain TEXT "
			"NOT NULL, seen_us INTEGER NOT "
			"NULL) STRICT;"
			"CREATE VIEW transfer_view AS "
			"SELECT id AS transfer_id, "
			"\"user\", " SQL_SHOWN(
				"batch") " AS batch, "
					 "state, "
					 "reason, "
					 "chunk_count, "
					 "pending_"
					 "count, "
					 "stored_count,"
					 " digest_"
					 "failed_count,"
					 " lost_count, "
					 "merged_count,"
					 " total_bytes,"
					 " stored_"
					 "bytes, "
					 "version, "
					 "digest, "
					 "is_retryable,"
					 " priority, "
					 "source, "
					 "client_addr,"
					 " " SQL_TIME("created_us") " AS created, " SQL_TIME(
						 "updated_us") " AS updated, CASE completed_us WHEN 0 THEN NULL "
							       "ELSE " SQL_TIME(
								       "completed_us") " END AS completed "
										       "FROM transfers;"
										       "CREATE VIEW "
										       "chunk_view AS "
										       "SELECT t.id AS "
										       "transfer_id,"
										       " " SQL_SHOWN(
											       "t."
											       "batch") " AS batch, "
													"c.file_id, "
													"c.chunk_"
													"index, "
													"c.size_"
													"bytes, "
													"c.state, "
													"c.target_"
													"node, "
													"c.actual_"
													"node, "
													"c.digest,"
													" " SQL_TIME(
														"c."
														"update"
														"d_"
														"us") " AS "
														      "update"
														      "d "
														      "FROM "
														      "chunks"
														      " c "
														      "JOIN "
														      "transf"
														      "ers t "
														      "ON "
														      "t.num "
														      "= "
														      "c."
														      "transf"
														      "er;"
														      "CREATE"
														      " VIEW "
														      "object"
														      "_view "
														      "AS "
														      "SELECT"
														      " t.id "
														      "AS "
														      "transf"
														      "er_id,"
														      " o."
														      "file_"
														      "id, "
														      "o.is_"
														      "pack, "
														      "o."
														      "first_"
														      "seq, "
														      "o."
														      "last_"
														      "seq, "
														      "o."
														      "size_"
														      "bytes,"
														      " o."
														      "chunk_"
														      "count "
														      "FROM "
														      "object"
														      "s o "
														      "JOIN "
														      "transf"
														      "ers t "
														      "ON "
														      "t.num "
														      "= "
														      "o."
														      "transf"
														      "er;"
														      "CREATE"
														      " VIEW "
														      "entry_"
														      "view "
														      "AS "
														      "SELECT"
														      " t.id "
														      "AS "
														      "transf"
														      "er_id,"
														      " e."
														      "seq, "
														      "e."
														      "type,"
														      " " SQL_OCTAL("e.mode") " AS mode, e.size_bytes, " SQL_SHOWN("e.path") " AS path, " SQL_SHOWN("e.target") " AS target, e.file_id, e.object_offset, e.digest, " SQL_TIME_NS(
															      "e.mtime_ns") " AS mtime FROM entries e JOIN transfers t ON t.num = e.transfer;"
																	    "CREATE VIEW audit_view AS SELECT id, " SQL_TIME("at_us") " AS at, kind, transfer_id, file_id, chunk_index, outcome, result, detail, \"user\", node_id, size_bytes, digest, node_addr, client_addr, request_id, user_agent, disk_path, " SQL_TIME(
																		    "started_us") " AS started, " SQL_TIME("finished_us") " AS finished FROM audit;",
	NULL)
/* What operators order about nodes; a weight that is NULL is the node's own to say. */
MIGRATION("CREATE TABLE node_orders (id TEXT NOT NULL PRIMARY KEY, word TEXT NOT NULL, weight_milli INTEGER, "
	  "updated_us INTEGER NOT NULL) STRICT;",
	  NULL)
/* For expiry and for cleaning up what failed: looked at again and again, and mostly empty. */
MIGRATION("CREATE INDEX transfers_idle ON transfers (updated_us) WHERE state='uploading';"
	  "CREATE INDEX transfers_uncleaned ON transfers (id) WHERE state='failed' AND stored_count>0;",
	  NULL)
/* A second copy of each chunk, on another node; '' where there is none. copied_*: the chunks that have one. */
MIGRATION(
	"ALTER TABLE transfers ADD COLUMN copies INTEGER NOT NULL DEFAULT 1;"
	"ALTER TABLE transfers ADD COLUMN copied_count INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE transfers ADD COLUMN copied_bytes INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE transfers ADD COLUMN is_copies_waived INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE chunks ADD COLUMN copy_node TEXT NOT NULL DEFAULT '';"
	"DROP VIEW chunk_view;"
	"CREATE VIEW chunk_view AS SELECT t.id AS transfer_id, " SQL_SHOWN(
		"t.batch") " AS batch, c.file_id, c.chunk_index, c.size_bytes, c.state, c.target_node, c.actual_node, "
			   "c.copy_node, c.digest, " SQL_TIME("c.updated_us") " AS updated FROM chunks c JOIN "
									      "transfers t ON t.num = c.transfer;",
	NULL)
/* The largest file id that a revision of the transfer's plan gave, whether the object is there still or not. */
MIGRATION("ALTER TABLE transfers ADD COLUMN last_file_id INTEGER NOT NULL DEFAULT 0;", NULL)
/* The audit as a chain (audit_chain.h). Rows may be taken out up to the anchor, which only an archive moves. One index finds a transfer's
	 * rows, an object's and a chunk's. */
MIGRATION(SQL_DROP_TRIGGER("audit_keeps_rows", "audit") SQL_DROP_TRIGGER(
		  "audit_keeps_text",
		  "audit") " DROP INDEX audit_transfer;"
			   " DROP VIEW audit_view;"
			   "ALTER TABLE audit ADD COLUMN algorithm TEXT;"
			   "ALTER TABLE audit ADD COLUMN prev_hash BLOB;"
			   "ALTER TABLE audit ADD COLUMN hash BLOB;"
			   "CREATE TABLE audit_head (one INTEGER PRIMARY KEY CHECK (one=1), last_id INTEGER NOT NULL, "
			   "last_hash BLOB NOT NULL, anchor_id INTEGER NOT NULL, anchor_hash BLOB NOT NULL) STRICT;"
			   "INSERT INTO audit_head VALUES (1, 0, " SQL_ZEROS_32 ", 0, " SQL_ZEROS_32 ");",
	  sql_audit_chain_old)
MIGRATION(
	"CREATE INDEX audit_chunk ON audit (transfer_id, file_id, chunk_index);" SQL_AUDIT_KEEPS(
		"OLD.id>(SELECT "
		"anchor_id FROM "
		"audit_head)") "CREATE"
			       " VIEW "
			       "audit_"
			       "view "
			       "AS "
			       "SELECT"
			       " id,"
			       " " SQL_TIME("at_us") " AS at, kind, transfer_id, file_id, chunk_index, outcome, "
						     "result, detail, \"user\", node_id, size_bytes, algorithm, "
						     "digest, node_addr, client_addr, request_id, user_agent, "
						     "disk_path, " SQL_TIME("started_us") " AS started, " SQL_TIME(
							     "finished_us") " AS finished, " SQL_HEX("hash") " AS hash "
													     "FROM "
													     "audit;",
	NULL)
/* How the client encrypted the files: cipher and key id; '' where it did not. */
MIGRATION("ALTER TABLE transfers ADD COLUMN seal TEXT NOT NULL DEFAULT '';", NULL)
