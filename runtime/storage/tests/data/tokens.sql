PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE tokens (
                   id INTEGER PRIMARY KEY AUTOINCREMENT,
                   hash BLOB NOT NULL UNIQUE,
                   name TEXT NOT NULL,
                   scope TEXT NOT NULL,
                   created_at INTEGER NOT NULL,
                   revoked_at INTEGER,
                   expires_at INTEGER,
                   made_by TEXT
                 ) STRICT;
INSERT INTO tokens VALUES(1,X'b657ea15382cd2f694f62c3363436f6c0efbbfd9c3bf56a73ef1b46ee20d1182','ci','admin',5,NULL,NULL,'{"kind":"user","name":"ann"}');
INSERT INTO tokens VALUES(2,X'171716594978f71f6394b8224aec1a20c8b7fbb05d06a68d10cab32fd941ace3','ci','read',6,NULL,2006,'{"kind":"user","name":"ann"}');
INSERT INTO tokens VALUES(3,X'463596149c53d0e0cf94d8a7459760bfc9f3b280e1e565c377c4015ac868021b','ci','board:0199',7,10,NULL,'{"kind":"user","name":"ann"}');
INSERT INTO tokens VALUES(5,X'b3f35fd4cc1b19026d003b3c923225128d3c04e4b171640f20a59a154944ba93','ci','read',9,NULL,NULL,'{"kind":"user","name":"ann"}');
CREATE TABLE token_keys (
                   key TEXT PRIMARY KEY,
                   token INTEGER NOT NULL
                 ) STRICT, WITHOUT ROWID;
INSERT INTO token_keys VALUES('admin/plain key',1);
INSERT INTO token_keys VALUES('key:d59d45635cf8b87f05f63075fa23f600',5);
CREATE TABLE key_secret (
                   id INTEGER PRIMARY KEY CHECK (id = 1),
                   secret BLOB NOT NULL
                 ) STRICT;
INSERT INTO key_secret VALUES(1,X'01eb58f8a7b9eb343843e352ac0ce1b6c0c8fc831084d4d8211a28ee86efbe1c');
CREATE TABLE audit_log (
       id INTEGER PRIMARY KEY AUTOINCREMENT,
       at INTEGER NOT NULL,
       action TEXT NOT NULL,
       subject TEXT,
       principal TEXT,
       done INTEGER NOT NULL
     ) STRICT;
INSERT INTO audit_log VALUES(1,5,'token_created','1','{"kind":"user","name":"ann"}',1);
INSERT INTO audit_log VALUES(2,6,'token_created','2','{"kind":"user","name":"ann"}',1);
INSERT INTO audit_log VALUES(3,7,'token_created','3','{"kind":"user","name":"ann"}',1);
INSERT INTO audit_log VALUES(4,8,'token_created','4','{"kind":"user","name":"ann"}',1);
INSERT INTO audit_log VALUES(5,9,'token_created','5','{"kind":"user","name":"ann"}',1);
INSERT INTO audit_log VALUES(6,9,'token_created','6','{"kind":"user","name":"ann"}',1);
INSERT INTO audit_log VALUES(7,10,'token_revoked','3','{"kind":"user","name":"ann"}',1);
INSERT INTO audit_log VALUES(8,11,'token_deleted','4','{"kind":"token","id":5,"name":"ci","made_by":{"kind":"user","name":"ann"}}',1);
INSERT INTO audit_log VALUES(9,11,'token_deleted','6','{"kind":"token","id":5,"name":"ci","made_by":{"kind":"user","name":"ann"}}',1);
INSERT INTO audit_log VALUES(10,12,'board_archived','b1','{"kind":"token","id":5,"name":"ci","made_by":{"kind":"user","name":"ann"}}',1);
INSERT INTO audit_log VALUES(11,13,'board_deleted','b2',NULL,0);
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('tokens',6);
INSERT INTO sqlite_sequence VALUES('audit_log',11);
COMMIT;
