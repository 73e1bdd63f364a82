-- A database of layout 1. Released: never change this file.
CREATE TABLE objects (
    grp TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (grp, plural, namespace, name)
);
CREATE TABLE log (
    revision INTEGER PRIMARY KEY,
    grp TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    kind INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE INDEX log_of_object ON log (grp, plural, namespace, name, revision);
CREATE TABLE owners (
    owner TEXT NOT NULL,
    grp TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    PRIMARY KEY (owner, grp, plural, namespace, name)
) WITHOUT ROWID;
CREATE INDEX owners_of_object ON owners (grp, plural, namespace, name);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO counters VALUES ('revision', 4), ('compacted', 2);
INSERT INTO objects VALUES
    ('', 'configmaps', 'default', 'a', 3, CAST('{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"u-2","resourceVersion":"3","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u-1"}]},"data":{"k":"v"}}' AS BLOB));
INSERT INTO log VALUES
    (3, '', 'configmaps', 'default', 'a', 0, CAST('{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"u-2","resourceVersion":"3","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u-1"}]},"data":{"k":"v"}}' AS BLOB)),
    (4, '', 'configmaps', 'default', 'b', 2, CAST('{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b","namespace":"default","uid":"u-3","resourceVersion":"4"}}' AS BLOB));
INSERT INTO owners VALUES ('u-1', '', 'configmaps', 'default', 'a');
PRAGMA user_version = 1;
