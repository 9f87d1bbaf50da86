/* Inserts, an index, updates and joins; ROWS rows. */
create table a(id integer primary key, k integer, name text, body text);
create table b(k integer, note text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < ROWS)
insert into a select i, (i * 7919) % 10007, 'name ' || (i * 31 % 65537),
substr(hex(i * 2654435761) || hex(i * 40503) || hex(i * 9973), 1, 8 + i % 90) from n;
insert into b select k, group_concat(name) from a group by k;
create index a_k on a(k); create index a_name on a(name); create index b_k on b(k);
update a set body = body || name where id % 3 = 0;
delete from a where id % 5 = 0;
select count(*), sum(length(body)), sum(length(note)) from a join b using (k);
select name, count(*) c from a group by name order by c desc, name limit 10;
