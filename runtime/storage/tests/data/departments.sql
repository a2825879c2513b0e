PRAGMA application_id = 1346520144;
PRAGMA user_version = 1;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE departments (
    name   TEXT NOT NULL PRIMARY KEY,
    fields TEXT NOT NULL
) STRICT;
INSERT INTO departments VALUES('notes','{"bought":"boolean","item":"string","list":"string","number":"integer","pieces":"integer","price":"number"}');
INSERT INTO departments VALUES('places','{"item":"string","list":"string","number":"integer"}');
CREATE TABLE outcomes (
    key        TEXT    NOT NULL PRIMARY KEY,
    department TEXT    NOT NULL,
    recorded   INTEGER NOT NULL,
    outcome    TEXT    NOT NULL
) STRICT;
INSERT INTO outcomes VALUES('b1:1','notes',5,'{"status":"done","action":"add","slots":{"item":"tea","list":"office"},"rows":[{"id":1,"after":{"item":"tea","list":"office"}}],"count":1,"verified":true}');
INSERT INTO outcomes VALUES('b1:2','notes',5,'{"status":"done","action":"add","slots":{"item":"milk","list":"office"},"rows":[{"id":2,"after":{"item":"milk","list":"office"}}],"count":1,"verified":true}');
INSERT INTO outcomes VALUES('b1:3','notes',20,'{"status":"done","action":"move","slots":{"item":"tea","list":"office","new_list":"household"},"rows":[{"id":1,"before":{"item":"tea","list":"office"},"after":{"item":"tea","list":"household"}}],"count":1,"verified":true}');
INSERT INTO outcomes VALUES('b1:4','notes',30,'{"status":"done","action":"remove","slots":{"item":"milk","list":"office"},"rows":[{"id":2,"before":{"item":"milk","list":"office"}}],"count":1,"verified":true}');
INSERT INTO outcomes VALUES('b1:5','notes',40,'{"status":"error","action":"add","slots":{"item":"tea","list":"household"},"rows":[],"count":0,"verified":false,"wrong":{"code":"taken","values":{"item":"tea","list":"household"}}}');
INSERT INTO outcomes VALUES('b1:6','notes',50,'{"status":"done","action":"add","slots":{"bought":true,"item":"\"oil\" ''ö''","list":"office","pieces":12,"price":2},"rows":[{"id":3,"after":{"bought":true,"item":"\"oil\" ''ö''","list":"office","pieces":12,"price":2}}],"count":1,"verified":true}');
INSERT INTO outcomes VALUES('b1:7','notes',60,'{"status":"done","action":"add","slots":{"bought":false,"item":"salt","list":"office","pieces":-3,"price":0.25},"rows":[{"id":4,"after":{"bought":false,"item":"salt","list":"office","pieces":-3,"price":0.25}}],"count":1,"verified":true}');
INSERT INTO outcomes VALUES('b2:1','places',70,'{"status":"done","action":"add","slots":{"item":"Rome","list":"office"},"rows":[{"id":1,"after":{"item":"Rome","list":"office"}}],"count":1,"verified":true}');
INSERT INTO outcomes VALUES('b2:2','places',80,'{"status":"done","action":"add","slots":{"item":"$redacted","list":"office"},"rows":[{"id":2,"after":{"item":"$redacted","list":"office"}}],"count":1,"verified":true}');
CREATE TABLE IF NOT EXISTS "department_notes" (
    seq INTEGER PRIMARY KEY,
    id INTEGER NOT NULL,
    version INTEGER NOT NULL,
    "item" TEXT,
    "list" TEXT,
    "number" INTEGER,
    valid_from INTEGER NOT NULL,
    valid_to INTEGER,
    recorded_from INTEGER NOT NULL,
    recorded_to INTEGER,
    deleted INTEGER NOT NULL,
    key TEXT NOT NULL
, "bought" INTEGER, "pieces" INTEGER, "price" REAL) STRICT;
INSERT INTO department_notes VALUES(1,1,1,'tea','office',NULL,5,NULL,5,20,0,'b1:1',NULL,NULL,NULL);
INSERT INTO department_notes VALUES(2,2,1,'milk','office',NULL,5,NULL,5,30,0,'b1:2',NULL,NULL,NULL);
INSERT INTO department_notes VALUES(3,1,1,'tea','office',NULL,5,20,20,NULL,0,'b1:1',NULL,NULL,NULL);
INSERT INTO department_notes VALUES(4,1,2,'tea','household',NULL,20,NULL,20,NULL,0,'b1:3',NULL,NULL,NULL);
INSERT INTO department_notes VALUES(5,2,1,'milk','office',NULL,5,30,30,NULL,0,'b1:2',NULL,NULL,NULL);
INSERT INTO department_notes VALUES(6,2,2,'milk','office',NULL,30,NULL,30,NULL,1,'b1:4',NULL,NULL,NULL);
INSERT INTO department_notes VALUES(7,3,1,'"oil" ''ö''','office',NULL,50,NULL,50,NULL,0,'b1:6',1,12,2.0);
INSERT INTO department_notes VALUES(8,4,1,'salt','office',NULL,60,NULL,60,NULL,0,'b1:7',0,-3,0.25);
CREATE TABLE IF NOT EXISTS "department_places" (
    seq INTEGER PRIMARY KEY,
    id INTEGER NOT NULL,
    version INTEGER NOT NULL,
    "item" TEXT,
    "list" TEXT,
    "number" INTEGER,
    valid_from INTEGER NOT NULL,
    valid_to INTEGER,
    recorded_from INTEGER NOT NULL,
    recorded_to INTEGER,
    deleted INTEGER NOT NULL,
    key TEXT NOT NULL
) STRICT;
INSERT INTO department_places VALUES(1,1,1,'Rome','office',NULL,70,NULL,70,NULL,0,'b2:1');
INSERT INTO department_places VALUES(2,2,1,NULL,NULL,NULL,80,NULL,80,NULL,1,'b2:2');
CREATE UNIQUE INDEX "department_notes current" ON "department_notes" (id) WHERE valid_to IS NULL AND recorded_to IS NULL AND deleted = 0;
CREATE INDEX "department_notes history" ON "department_notes" (id, recorded_from);
CREATE UNIQUE INDEX "department_places current" ON "department_places" (id) WHERE valid_to IS NULL AND recorded_to IS NULL AND deleted = 0;
CREATE INDEX "department_places history" ON "department_places" (id, recorded_from);
COMMIT;
